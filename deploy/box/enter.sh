#!/bin/sh
# Runs a command as the box's unprivileged user, in a mount namespace of its own in which the checkout appears at PLACE.
# So the user needs no right to walk the folders above the checkout (a clone under /root works), nothing is mounted where
# others would see it, and the mount is gone with the process. The process keeps its id: the supervisor's signals reach it.
#   usage: enter.sh USER CHECKOUT PLACE COMMAND...        (as root)
set -eu
# shellcheck disable=SC2016 # the inner shell expands these
exec unshare --mount --propagation private -- /bin/sh -eu -c '
  user=$1 checkout=$2 place=$3
  shift 3
  mount --bind -- "$checkout" "$place"
  cd -- "$place"
  umask 027
  exec setpriv --reuid "$user" --regid "$user" --init-groups --no-new-privs --inh-caps=-all --bounding-set=-all -- "$@"
' enter "$@"
