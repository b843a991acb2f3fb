# Build stage: static binaries from source.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=dev
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X relay.version=${VERSION}" -o /out/ ./cmd/relayd ./cmd/relay \
 && mkdir -p /out/data

# Run stage: nothing but the binaries, as an unprivileged user.
FROM gcr.io/distroless/static-debian12:nonroot
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
