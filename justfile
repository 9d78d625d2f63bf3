# Recipes for people. `./test` runs the same ones in order and installs their tools into target/tools.

tools := justfile_directory() / "target/tools"

# List the recipes.
default:
    @just --list

# Everything that has to hold before a change is merged.
all:
    ./test

# What to run before each commit: format, shape, lints and unit tests, in three minutes once it is built.
check: shape
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --locked -- -D warnings
    cargo test --workspace --lib --locked

# Format the code.
fmt:
    cargo fmt --all

# Sizes, names and phrases of the sources against their bounds.
shape:
    tests/shape.py

# Clippy with warnings as errors, and the rules of the contract.
lint:
    cargo clippy --workspace --all-targets --locked -- -D warnings
    cd proto && {{tools}}/node/node_modules/.bin/buf lint
    REDOCLY_TELEMETRY=off {{tools}}/node/node_modules/.bin/redocly lint --extends=recommended-strict --skip-rule=operation-4xx-response docs/openapi.json
    cd docs && {{tools}}/node/node_modules/.bin/spectral lint --fail-severity=hint openapi.json

# Bans, licences and sources of the dependencies, duplicate versions included.
deny:
    {{tools}}/bin/cargo-deny --offline check bans licenses sources

# The Helm chart: its values, its variants, what it refuses.
chart:
    {{tools}}/deploy/bin/check-jsonschema --schemafile deploy/helm/hookgate/values.schema.json deploy/helm/variants/*.yaml
    {{tools}}/deploy/bin/python deploy/check/chart.py

# The API documentation, of Rust and of TypeScript.
doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked
    npm --prefix sdk/typescript run --silent reference

# The tests, or those whose name contains FILTER.
test FILTER="":
    cargo test --workspace --locked {{FILTER}}

# Every test in a process of its own, and those over ten seconds by name. Needs cargo-nextest.
slowest:
    cargo nextest run --workspace --locked

# Generate the Rust code of the contract again from the .proto files.
regenerate:
    HOOKGATE_REGENERATE=1 cargo test -p hookgate-proto --locked --test regenerate

# What a call costs: a table of ratios, also in target/bench.json. Takes about five minutes once it is built.
bench *ARGUMENTS:
    cargo build --release --locked -p hookgate-cli -p hookgate-bench
    target/release/hookgate-bench --json target/bench.json {{ARGUMENTS}}

# The gateway's cost beside Envoy's: a table of ratios, also in target/bench-envoy.json. Installs Envoy into target/tools.
bench-envoy *ARGUMENTS:
    bench/envoy.sh {{ARGUMENTS}}

# The LLM proxy's cost beside LiteLLM's: a table of ratios, also in target/bench-litellm.json. Installs LiteLLM into target/tools.
bench-litellm *ARGUMENTS:
    bench/litellm.sh {{ARGUMENTS}}

# Instructions and allocations per call, compared with bench/costs.json. Needs valgrind.
bench-check:
    cargo build --release --locked -p hookgate-cli -p hookgate-bench
    target/release/hookgate-bench --check-costs bench/costs.json
