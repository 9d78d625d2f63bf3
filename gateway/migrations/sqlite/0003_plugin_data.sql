-- Entries of plugins: a value or a counter. The tenant '' stands for the plugin's own data.
CREATE TABLE hookgate_plugin_data (
    plugin TEXT NOT NULL,
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    value BLOB,
    counter INTEGER,
    version INTEGER NOT NULL,
    expires_ms INTEGER,
    PRIMARY KEY (plugin, tenant, key),
    CHECK ((value IS NULL) <> (counter IS NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX hookgate_plugin_data_expiry ON hookgate_plugin_data (expires_ms) WHERE expires_ms IS NOT NULL;

CREATE TABLE hookgate_signing_keys (
    generation INTEGER PRIMARY KEY,
    created_ms INTEGER NOT NULL,
    secret BLOB NOT NULL
) STRICT;
