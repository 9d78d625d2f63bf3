CREATE TABLE hookgate_upstreams (
    name TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    version INTEGER NOT NULL,
    spec TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE hookgate_models (
    name TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    version INTEGER NOT NULL,
    spec TEXT NOT NULL
) STRICT, WITHOUT ROWID;
