//! `hookgate token`: inspects tokens as a gateway with a given configuration would, and makes tokens that it accepts.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, builder::PossibleValuesParser, builder::TypedValueParser};

use super::{
    Exit,
    config::unread,
    new::plugin_name,
    output::{Output, printable},
};
use hookgate::{
    auth::{Authenticator, RefusalReason, TokenInspection, scope_name, scope_named},
    config::{self, Config, Problem, Problems, Scope},
    core::error::{Code, Error},
    routing::RouteTable,
};

mod inspect;
mod mint;

pub(super) use mint::for_agent;

#[derive(Debug, Subcommand)]
pub(super) enum TokenCommand {
    /// Shows a token's contents, and whether it would be accepted.
    ///
    /// Contacts only the token's issuer, and only if it publishes its keys (`jwks_url`). The signature is never
    /// shown.
    #[command(after_help = "Example: hookgate token inspect --config hookgate.yaml - < token.txt\n\n\
                            Exit codes: 0 accepted on the data or the admin port, or for registering plugins, 1 \
                            refused, 2 invalid configuration or usage.")]
    Inspect {
        /// The token. `-` reads standard input, where other users of the machine can't see it, as does no token if
        /// standard input is not a terminal.
        #[arg(value_name = "TOKEN|-")]
        token: Option<String>,
        /// The gateway's configuration. Variables of plugins' `config` and of providers' keys may be unset.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// Output format.
        #[arg(long, value_enum, default_value_t)]
        output: Output,
    },
    /// Makes a token that a gateway of this configuration accepts.
    ///
    /// The token is signed with the issuer's shared secret (HS256, HS384, HS512), so the configuration must hold one.
    /// Of other keys it has only the public half.
    #[command(after_help = "Example: hookgate token mint --config hookgate.yaml --tenant acme --ttl 15m\n\n\
                            Exit codes: 0 printed, 1 the token can't be made, 2 invalid configuration or usage.")]
    Mint(Mint),
}

/// The contents of the token.
#[derive(Debug, Args)]
pub(super) struct Mint {
    #[command(flatten)]
    signing: SigningArgs,
    /// The tenant. With --admin, omit it for a token that sees all tenants.
    #[arg(long, display_order = 1, required_unless_present_any = ["admin", "plugins"], conflicts_with = "plugins")]
    tenant: Option<String>,
    /// Scope of the token; may be repeated [default: hookgate:invoke, with --admin hookgate:read, with --plugin
    /// hookgate:plugin].
    #[arg(long = "scope", display_order = 3, value_name = "SCOPE", value_parser = scopes())]
    scopes: Vec<Scope>,
    /// Plugin that may register itself with the token; may be repeated. The token has the admin port's audience, and
    /// names no tenant.
    #[arg(long = "plugin", display_order = 4, value_name = "NAME", value_parser = plugin_name)]
    plugins: Vec<String>,
    /// Makes a token for the admin port instead of the data port.
    #[arg(long)]
    admin: bool,
    /// Output format; json and yaml contain `token`, `issuer` and `expires`, in seconds since 1970.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// Who signs a token and for how long, as every command asks that makes one. Between them in the help is what the
/// token is for.
#[derive(Debug, Args)]
pub(super) struct SigningArgs {
    /// The gateway's configuration. Variables of plugins' `config` and of providers' keys may be unset.
    #[arg(long, display_order = 0, value_name = "FILE")]
    pub(super) config: PathBuf,
    /// Operator that acts for the tenant.
    #[arg(long, display_order = 2, default_value = "hookgate-token-mint")]
    operator: String,
    /// The issuer, by its `issuer`. Default: the only one that can sign for the tenant.
    #[arg(long, display_order = 5)]
    issuer: Option<String>,
    /// Lifetime, from 1s to 720h.
    #[arg(long, display_order = 6, default_value = "1h", value_parser = mint::ttl)]
    ttl: config::Span,
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

/// Extracts the token from a text, which may be a whole `Authorization` header.
pub(super) fn bare(text: &str) -> &str {
    let prefixes = ["Authorization:", "authorization:", "Bearer ", "bearer "];
    prefixes.iter().fold(text.trim(), |text, prefix| text.strip_prefix(prefix).unwrap_or(text).trim())
}

/// The parts of a gateway that check tokens.
pub(super) struct TokenChecker {
    pub(super) config: Config,
    auth: Authenticator,
    table: RouteTable,
}

impl TokenChecker {
    pub(super) fn new(file: &Path) -> Result<Self, Problems> {
        let loaded = config::load_without_outgoing_secrets(file, config::environment_variables())?;
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

    /// The checks of a call, up to its limits.
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

    /// The note for a tenant that the file refuses and the registry may have.
    fn elsewhere(&self, tenant: &str, refused: &Error) -> Option<String> {
        let store = self.config.store.as_ref()?;
        if store.apply_file && refused.code != Code::TenantUnknown {
            return None;
        }
        let unread = unread(&self.config)?;
        Some(format!(
            "the file doesn't list tenant `{}`, and {unread}: the token works if the registry has the tenant \
             (`hookgate tenant show`)",
            printable(tenant)
        ))
    }

    /// The checks of a status request.
    fn at_admin(&self, inspected: &TokenInspection) -> TokenVerdict {
        let verified = inspected.admin.as_ref().map_err(token_refusal)?;
        verified.reader().map(|_| None).map_err(|refusal| token_refusal(&refusal))
    }

    /// The checks of a registration of the plugins that the token names.
    fn at_registration(inspected: &TokenInspection) -> TokenVerdict {
        let verified = inspected.admin.as_ref().map_err(token_refusal)?;
        verified.require(Scope::Plugin).map_err(|refusal| token_refusal(&refusal))?;
        if verified.plugins.is_empty() {
            let error = Error::new(Code::TokenInvalid, "The token names no plugin");
            return Err(TokenRefusal { error, reason: Some(RefusalReason::Claims.as_str()) });
        }
        verified.registers_any().map_err(|refusal| token_refusal(&refusal))?;
        Ok(None)
    }
}

/// One port's verdict on a token, as far as the file can tell, with a note on what only the registry knows.
type TokenVerdict = Result<Option<String>, TokenRefusal>;

/// A refused token.
struct TokenRefusal {
    /// The detail that the caller gets.
    error: Error,
    /// The reason in the gateway's log and metrics, if more specific than the code.
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
