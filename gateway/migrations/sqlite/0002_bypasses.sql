CREATE TABLE hookgate_bypasses (
    name TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    version INTEGER NOT NULL,
    spec TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- What a revision did to objects of kinds that the version with step 1 alone can't read: it reads `changes`, and goes on.
ALTER TABLE hookgate_revisions ADD COLUMN further TEXT;
