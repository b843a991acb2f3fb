-- +goose Up
-- What the signature of the request was worth: the verdict, a space, and the rest as JSON; empty = not judged.
ALTER TABLE events ADD COLUMN signature TEXT NOT NULL DEFAULT '';
