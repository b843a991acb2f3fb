-- +goose Up
-- Remote forwards (ssh -R) that an account was refused at any node: the newest of each bind
-- address and error code, and how often. The dashboard shows them for an hour.
CREATE TABLE refused_forwards (
    account_id BIGINT NOT NULL REFERENCES accounts (id),
    bind       TEXT NOT NULL,
    code       TEXT NOT NULL,
    message    TEXT NOT NULL,
    remote     TEXT NOT NULL,
    times      BIGINT NOT NULL,
    refused_at BIGINT NOT NULL,
    PRIMARY KEY (account_id, bind, code)
);
