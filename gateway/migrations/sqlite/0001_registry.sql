-- Text is compared by its bytes here by default.

CREATE TABLE hookgate_head (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    revision INTEGER NOT NULL
) STRICT;
INSERT INTO hookgate_head (one, revision) VALUES (1, 0);

CREATE TABLE hookgate_plugins (
    name TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    version INTEGER NOT NULL,
    spec TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE hookgate_tenants (
    name TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    version INTEGER NOT NULL,
    spec TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE hookgate_bindings (
    name TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    version INTEGER NOT NULL,
    spec TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE hookgate_revisions (
    number INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    at_ms INTEGER NOT NULL,
    author TEXT NOT NULL,
    reason TEXT NOT NULL,
    changes TEXT NOT NULL
) STRICT;

CREATE TRIGGER hookgate_revisions_update BEFORE UPDATE ON hookgate_revisions
BEGIN
    SELECT RAISE(ABORT, 'a revision never changes');
END;

CREATE TRIGGER hookgate_revisions_delete BEFORE DELETE ON hookgate_revisions
BEGIN
    SELECT RAISE(ABORT, 'a revision never changes');
END;

-- INSERT OR REPLACE deletes without asking the trigger above.
CREATE TRIGGER hookgate_revisions_insert BEFORE INSERT ON hookgate_revisions
WHEN EXISTS (SELECT 1 FROM hookgate_revisions WHERE number >= NEW.number OR id = NEW.id)
BEGIN
    SELECT RAISE(ABORT, 'a revision never changes');
END;
