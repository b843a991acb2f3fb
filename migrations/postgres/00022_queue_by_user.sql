-- +goose Up
-- 1 = a user has released the attempt, 0 = it was not released, or only because the tunnel of the alias was at another node.
ALTER TABLE queue ADD COLUMN by_user SMALLINT NOT NULL DEFAULT 0;
