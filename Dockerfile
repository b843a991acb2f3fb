# Build stage: static binaries, compiled on the machine that builds for the platform that is
# asked for. docker buildx build --platform linux/amd64,linux/arm64 \
#   --build-arg VERSION=$(git describe --tags) --build-arg COMMIT=$(git rev-parse HEAD) .
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG TARGETOS TARGETARCH VERSION=dev COMMIT= DATE=
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/cache \
    GOCACHE=/cache CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath \
    -ldflags "-s -w -X relay.version=${VERSION} -X relay.commit=${COMMIT} -X relay.date=${DATE}" \
    -o /out/ ./cmd/relayd ./cmd/relay \
 && mkdir -p /out/data

# Run stage: nothing but the binaries, as an unprivileged user. Only /data is written to.
FROM gcr.io/distroless/static-debian12:nonroot
ARG VERSION=dev COMMIT= DATE=
LABEL org.opencontainers.image.title="Relay" \
      org.opencontainers.image.description="Self-hosted SSH tunnel server for webhooks" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${COMMIT}" \
      org.opencontainers.image.created="${DATE}"
COPY --from=build /out/relayd /out/relay /usr/local/bin/
COPY --from=build --chown=nonroot:nonroot /out/data /data
ENV RELAY_DATA_DIR=/data \
    RELAY_HTTP_ADDR=:8080 \
    RELAY_SSH_ADDR=:2222
VOLUME /data
EXPOSE 8080 2222
# Longer than 5 s, which healthcheck itself waits; a start may have to migrate first.
HEALTHCHECK --interval=10s --timeout=7s --start-period=60s CMD ["relayd", "healthcheck"]
ENTRYPOINT ["relayd"]
CMD ["serve"]
