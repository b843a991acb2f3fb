-- +goose Up
-- Of an event that was made and sent here: who did, from which event, what was changed and who signed it, as
-- JSON; empty = a caller sent it.
ALTER TABLE events ADD COLUMN sent TEXT NOT NULL DEFAULT '';
-- A token with all scopes gets the new one too; 128 is events:send.
UPDATE tokens SET scopes = 255 WHERE scopes = 127;
