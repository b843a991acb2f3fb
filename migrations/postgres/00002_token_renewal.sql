-- +goose Up
-- Each use of a token with a renewal sets expires_at that many microseconds after the use.
ALTER TABLE tokens ADD COLUMN renewal BIGINT NOT NULL DEFAULT 0;
