#!/usr/bin/env bash
# pin.sh FILE...: gives every base image that is named by a tag (FROM …, image: …) the digest that its registry has for it
# today: `name:tag@sha256:…`. Images that we build ourselves have no tag and stay. Run it again after a tag was changed.
set -euo pipefail
[ $# -gt 0 ] || { echo "usage: pin.sh FILE..." >&2; exit 2; }
command -v docker >/dev/null || { echo "pin-images: docker is missing (it asks the registry for digests)" >&2; exit 2; }
images=$(sed -nE 's/^(FROM|[[:space:]]+image:) +([^ @]+:[^ @]+)(@sha256:[0-9a-f]+)?( .*)?$/\2/p' "$@" | sort -u)
for image in $images; do
  digest=$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$image")
  [[ $digest =~ ^sha256:[0-9a-f]{64}$ ]] || { echo "pin-images: no digest for $image: $digest" >&2; exit 1; }
  sed -i -E "s#^(FROM|[[:space:]]+image:) +${image//./\\.}(@sha256:[0-9a-f]+)?( .*)?\$#\\1 $image@$digest\\3#" "$@"
  echo "pin-images: $image@$digest" >&2
done
