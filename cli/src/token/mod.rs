//! `hookgate token`: looks at tokens as a gateway of a configuration would, and makes some that it accepts.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, builder::PossibleValuesParser, builder::TypedValueParser};

use super::{
    Exit,
    config::unread,
    output::{Output, printable},
};
use hookgate::{
    auth::{Authenticator, TokenInspection, scope_name, scope_named},
    config::{self, Config, Problem, Problems, Scope},
    core::error::{Code, Error},
    routing::RouteTable,
};

mod inspect;
mod mint;

#[derive(Debug, Subcommand)]
pub(super) enum TokenCommand {
    /// Says what a token is, and whether it would be accepted or why not.
    ///
    /// Nothing but its issuer is asked, and that only where it publishes its keys (`jwks_url`). The signature is never
    /// shown.
    #[command(after_help = "Example: hookgate token inspect --config hookgate.yaml - < token.txt\n\n\
                            Exit codes: 0 accepted on the data or the admin port, 1 refused on both, 2 invalid \
                            configuration or usage.")]
    Inspect {
        /// The token; `-`, and no token before a pipe, reads standard input, where other users of the machine don't see it.
        #[arg(value_name = "TOKEN|-")]
        token: Option<String>,
        /// The configuration of the gateway.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Output format.
        #[arg(long, value_enum, default_value_t)]
        output: Output,
    },
    /// Makes a token that a gateway of this configuration accepts.
    ///
    /// It is signed with the shared secret (HS256, HS384, HS512) of its issuer, so the configuration must hold one: of
    /// other keys it has the public half alone.
    #[command(after_help = "Example: hookgate token mint --config hookgate.yaml --tenant acme --ttl 15m\n\n\
                            Exit codes: 0 printed, 1 the token can't be made, 2 invalid configuration or usage.")]
    Mint(Mint),
}

/// What the token is to say.
#[derive(Debug, Args)]
pub(super) struct Mint {
    /// The configuration of the gateway.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The tenant; with --admin absent for a token that sees all tenants.
    #[arg(long, required_unless_present = "admin")]
    tenant: Option<String>,
    /// Who acts for the tenant.
    #[arg(long, default_value = "hookgate-token-mint")]
    operator: String,
    /// What it may be used for; may be repeated [default: hookgate:invoke, with --admin hookgate:read].
    #[arg(long = "scope", value_name = "SCOPE", value_parser = scopes())]
    scopes: Vec<Scope>,
    /// The issuer, by its `issuer`; absent: the only one that can sign for the tenant.
    #[arg(long)]
    issuer: Option<String>,
    /// How long it is good, from 1s to 720h.
    #[arg(long, default_value = "1h", value_parser = mint::ttl)]
    ttl: config::Span,
    /// For the admin port instead of the data port.
    #[arg(long)]
    admin: bool,
    /// Output format; json and yaml contain `token`, `issuer` and `expires`, in seconds since 1970.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

fn scopes() -> impl TypedValueParser<Value = Scope> {
    let all = [Scope::Invoke, Scope::Read, Scope::Admin, Scope::Plugin].map(scope_name);
    PossibleValuesParser::new(all).map(|name| scope_named(&name).expect("it is one of those listed"))
}

pub(super) async fn run(command: TokenCommand) -> Exit {
    match command {
        TokenCommand::Inspect { token, config, output } => inspect::run(token, &config, output).await,
        TokenCommand::Mint(mint) => mint::run(mint).await,
    }
}

/// The token of a text, which may be a whole header of a request.
pub(super) fn bare(text: &str) -> &str {
    let prefixes = ["Authorization:", "authorization:", "Bearer ", "bearer "];
    prefixes.iter().fold(text.trim(), |text, prefix| text.strip_prefix(prefix).unwrap_or(text).trim())
}

/// Those parts of a gateway that look at tokens.
struct TokenChecker {
    config: Config,
    auth: Authenticator,
    table: RouteTable,
}

impl TokenChecker {
    fn new(file: &Path) -> Result<Self, Problems> {
        let loaded = config::load(file, config::environment_variables())?;
        let auth = Authenticator::new(&loaded.config.auth);
        let auth = auth.map_err(|wrong| loaded.render(&Problem::all(wrong)))?;
        let table = RouteTable::build(&loaded.config, &[], 1).map_err(|wrong| loaded.render(&wrong))?;
        Ok(TokenChecker { config: loaded.config, auth, table })
    }

    async fn judge(&self, token: &str) -> (TokenInspection, TokenVerdict, TokenVerdict) {
        let inspected = self.auth.inspect(token).await;
        let (data, admin) = (self.at_data(&inspected), self.at_admin(&inspected));
        (inspected, data, admin)
    }

    /// As a call is judged, up to where the limits begin.
    fn at_data(&self, inspected: &TokenInspection) -> TokenVerdict {
        let verified = inspected.data.as_ref().map_err(token_refusal)?;
        let identity = verified.invoker().map_err(|refusal| token_refusal(&refusal))?;
        match hookgate::snapshot::tenant(&self.table, identity) {
            Ok(_) => Ok(None),
            Err(error) => {
                self.elsewhere(&identity.tenant, &error).map(Some).ok_or(TokenRefusal { error, reason: None })
            }
        }
    }

    /// Whether the registry may know better than the file, which refuses the tenant: then what is to be said of it.
    fn elsewhere(&self, tenant: &str, refused: &Error) -> Option<String> {
        let store = self.config.store.as_ref()?;
        if store.apply_file && refused.code != Code::TenantUnknown {
            return None;
        }
        let unread = unread(&self.config)?;
        Some(format!(
            "the file doesn't list tenant `{}`, and {unread}: the token is good where the registry has it (`hookgate \
             tenant show`)",
            printable(tenant)
        ))
    }

    /// As a question for status is judged.
    fn at_admin(&self, inspected: &TokenInspection) -> TokenVerdict {
        let verified = inspected.admin.as_ref().map_err(token_refusal)?;
        verified.reader().map(|_| None).map_err(|refusal| token_refusal(&refusal))
    }
}

/// What one port says to a token: it is let in, as far as the file says; beside that what only the registry knows.
type TokenVerdict = Result<Option<String>, TokenRefusal>;

/// A token that is turned away.
struct TokenRefusal {
    /// What the caller is told.
    error: Error,
    /// What the gateway's log and metrics say, where it is finer than the code.
    reason: Option<&'static str>,
}

impl TokenRefusal {
    fn code(&self) -> Code {
        self.error.code
    }
}

fn token_refusal(refusal: &hookgate::auth::AuthRefusal) -> TokenRefusal {
    TokenRefusal { error: refusal.clone().into(), reason: Some(refusal.reason.as_str()) }
}
