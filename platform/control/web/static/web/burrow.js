// What the pages do beyond plain forms: polling rests while nobody looks, logs follow their end, commands copy on a click.
// Every action works without this file.
"use strict";

(() => {
  const STICK_PX = 40; // this close to the end counts as "reading the end"
  const COPIED_MS = 1600;

  const isPoll = (element) => (element.getAttribute("hx-trigger") || "").startsWith("every ");

  document.addEventListener("htmx:beforeRequest", (event) => {
    if (document.hidden && isPoll(event.target)) event.preventDefault();
  });
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) document.body.dispatchEvent(new CustomEvent("shown"));
  });

  const log = () => document.querySelector("[data-follow]");
  const atEnd = (element) => element.scrollHeight - element.scrollTop - element.clientHeight < STICK_PX;
  const toEnd = (element) => { element.scrollTop = element.scrollHeight; };
  let following = true;

  document.addEventListener("htmx:beforeSwap", () => {
    const element = log();
    following = element === null || atEnd(element);
  });
  document.addEventListener("htmx:afterSettle", () => {
    const element = log();
    if (element !== null && following) toEnd(element);
  });

  // Polling failed (the control plane restarts, the laptop slept): say so quietly instead of showing old facts as new.
  const stale = (yes) => document.documentElement.classList.toggle("stale", yes);
  document.addEventListener("htmx:sendError", () => stale(true));
  document.addEventListener("htmx:responseError", () => stale(true));
  document.addEventListener("htmx:afterRequest", (event) => { if (event.detail.successful) stale(false); });

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (button === null) return;
    const source = document.getElementById(button.dataset.copy);
    const label = button.querySelector("[data-label]");
    const was = label.textContent;
    try {
      await navigator.clipboard.writeText(source.textContent.trim());
      label.textContent = "Copied";
    } catch {
      const range = document.createRange();
      range.selectNodeContents(source);
      const selection = window.getSelection();
      selection.removeAllRanges();
      selection.addRange(range);
      label.textContent = "Selected";
    }
    setTimeout(() => { label.textContent = was; }, COPIED_MS);
  });

  document.addEventListener("DOMContentLoaded", () => {
    document.documentElement.classList.add("scripted");
    const element = log();
    if (element !== null) toEnd(element);
  });
})();
