"""How refusals leave the API: always `{"code": ..., "message": ...}`, with the status that belongs to their kind."""

from __future__ import annotations

from http import HTTPStatus

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError

from control import log
from control.errors import Kind, UserError

logger = log.get(__name__)

STATUS = {
    Kind.INVALID: HTTPStatus.UNPROCESSABLE_ENTITY,
    Kind.CONFLICT: HTTPStatus.CONFLICT,
    Kind.NOT_FOUND: HTTPStatus.NOT_FOUND,
    Kind.DENIED: HTTPStatus.FORBIDDEN,
    Kind.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
}
RETRY_AFTER_S = 5


def refusal(code: str, message: str, status: int) -> JsonResponse:
    """The body of every answer that is not 2xx."""
    response = JsonResponse({"code": code, "message": message}, status=status)
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        response["Retry-After"] = str(RETRY_AFTER_S)
    if status == HTTPStatus.UNAUTHORIZED:
        response["WWW-Authenticate"] = "Bearer"
    return response


def register(api: NinjaAPI) -> None:
    """Teach the API how expected failures look."""

    @api.exception_handler(UserError)
    def user_error(request: HttpRequest, error: UserError) -> HttpResponse:
        return refusal(error.code, error.message, STATUS[error.kind])

    @api.exception_handler(AuthenticationError)
    def not_authenticated(request: HttpRequest, error: AuthenticationError) -> HttpResponse:
        return refusal("token:invalid", "A valid API token is needed: Authorization: Bearer ...", 401)

    @api.exception_handler(Http404)
    def not_found(request: HttpRequest, error: Http404) -> HttpResponse:
        return refusal("api:not_found", "There is nothing here.", 404)

    @api.exception_handler(ValidationError)
    def not_valid(request: HttpRequest, error: ValidationError) -> HttpResponse:
        problems = (f"{'.'.join(str(p) for p in e['loc'][1:])}: {e['msg']}" for e in error.errors)
        return refusal("api:invalid", "; ".join(problems), 422)

    @api.exception_handler(HttpError)
    def http_error(request: HttpRequest, error: HttpError) -> HttpResponse:
        return refusal("api:bad_request", str(error), error.status_code)

    @api.exception_handler(Exception)
    def broken(request: HttpRequest, error: Exception) -> HttpResponse:
        logger.error("an API call broke", path=request.path, exc_info=error)
        return refusal("api:internal", "Something broke on our side. It is logged; try again in a moment.", 500)
