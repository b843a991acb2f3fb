-- +goose Up
-- 1 = the caller had left, or was cut off, before it got the whole answer of the attempt.
ALTER TABLE attempts ADD COLUMN caller_gone INTEGER NOT NULL DEFAULT 0;
