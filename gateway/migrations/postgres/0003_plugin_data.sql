-- Entries of plugins: a value or a counter. The tenant '' stands for the plugin's own data.
CREATE TABLE hookgate_plugin_data (
    plugin TEXT COLLATE "C" NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    value BYTEA,
    counter BIGINT,
    version BIGINT NOT NULL,
    expires_ms BIGINT,
    PRIMARY KEY (plugin, tenant, key),
    CHECK ((value IS NULL) <> (counter IS NULL))
);

CREATE INDEX hookgate_plugin_data_expiry ON hookgate_plugin_data (expires_ms) WHERE expires_ms IS NOT NULL;

CREATE TABLE hookgate_signing_keys (
    generation BIGINT PRIMARY KEY,
    created_ms BIGINT NOT NULL,
    secret BYTEA NOT NULL
);
