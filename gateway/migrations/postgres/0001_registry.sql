-- Text is compared by its bytes, whatever the database's collation; a database is shared with other applications, so
-- everything here is named hookgate_*.

CREATE TABLE hookgate_head (
    one SMALLINT PRIMARY KEY CHECK (one = 1),
    revision BIGINT NOT NULL
);
INSERT INTO hookgate_head (one, revision) VALUES (1, 0);

CREATE TABLE hookgate_plugins (
    name TEXT COLLATE "C" PRIMARY KEY,
    owner TEXT NOT NULL,
    version BIGINT NOT NULL,
    spec TEXT NOT NULL
);

CREATE TABLE hookgate_tenants (
    name TEXT COLLATE "C" PRIMARY KEY,
    owner TEXT NOT NULL,
    version BIGINT NOT NULL,
    spec TEXT NOT NULL
);

CREATE TABLE hookgate_bindings (
    name TEXT COLLATE "C" PRIMARY KEY,
    owner TEXT NOT NULL,
    version BIGINT NOT NULL,
    spec TEXT NOT NULL
);

CREATE TABLE hookgate_revisions (
    number BIGINT PRIMARY KEY,
    id UUID NOT NULL UNIQUE,
    at_ms BIGINT NOT NULL,
    author TEXT NOT NULL,
    reason TEXT NOT NULL,
    changes TEXT NOT NULL
);

CREATE FUNCTION hookgate_immutable() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a revision never changes';
END
$$;

CREATE TRIGGER hookgate_revisions_change BEFORE UPDATE OR DELETE ON hookgate_revisions
FOR EACH ROW EXECUTE FUNCTION hookgate_immutable();

CREATE TRIGGER hookgate_revisions_truncate BEFORE TRUNCATE ON hookgate_revisions
FOR EACH STATEMENT EXECUTE FUNCTION hookgate_immutable();
