CREATE TABLE hookgate_upstreams (
    name TEXT COLLATE "C" PRIMARY KEY,
    owner TEXT NOT NULL,
    version BIGINT NOT NULL,
    spec TEXT NOT NULL
);

CREATE TABLE hookgate_models (
    name TEXT COLLATE "C" PRIMARY KEY,
    owner TEXT NOT NULL,
    version BIGINT NOT NULL,
    spec TEXT NOT NULL
);
