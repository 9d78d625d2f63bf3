//! The variables that a manifest gives to programs.

use std::{collections::BTreeMap, env};

use crate::plugin_entry::{OWN_VARIABLES, secret_lines};

/// Variables of programs.
#[derive(Debug, Default)]
pub(crate) struct Environment {
    pub(crate) variables: BTreeMap<String, String>,
    /// The values that must not be shown.
    pub(crate) secrets: Vec<String>,
}

/// Resolves `env` of a manifest. A value that is `${NAME}` as a whole is a variable of the runner, if `allowed` names it: a manifest
/// comes from a third party, and the runner's environment is the operator's. The variables in `allowed` are in the
/// environment too.
///
/// # Errors
/// If `env` has a name that no plugin may set.
pub(crate) fn resolve(
    written: &BTreeMap<String, String>,
    allowed: &[String],
    warnings: &mut Vec<String>,
) -> Result<Environment, String> {
    let mut environment = Environment::default();
    for (name, value) in written {
        if is_reserved(name) {
            return Err(format!("a plugin can't set {name}: leave it out"));
        }
        if !is_name(name) {
            return Err(format!("`{name}` can't be the name of a variable"));
        }
        let value = match value.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')) {
            Some(reference) => environment.reference(name, reference, allowed, warnings),
            None => value.clone(),
        };
        environment.variables.insert(name.clone(), value.replace('\0', ""));
    }
    for name in allowed {
        if let Ok(value) = env::var(name) {
            environment.secrets.extend(secret_lines(&value));
            environment.variables.insert(name.clone(), value);
        }
    }
    Ok(environment)
}

/// Beginnings of variables that no plugin may set: the runner's own, and those with which the loader executes code before
/// the access rights of a program are restricted.
const RESERVED: [&str; 6] = ["GCONV_", "GLIBC_", "HOOKGATE_", "KAGED_", "LD_", "LIBREFANG_"];

/// Whether no plugin may set this variable.
pub(crate) fn is_reserved(name: &str) -> bool {
    OWN_VARIABLES.contains(&name) || RESERVED.iter().any(|reserved| name.starts_with(reserved))
}

/// Whether a process can have this variable.
pub(crate) fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0'])
}

impl Environment {
    fn reference(
        &mut self,
        name: &str,
        reference: &str,
        allowed: &[String],
        warnings: &mut Vec<String>,
    ) -> String {
        let found = match allowed.iter().any(|allowed| allowed == reference) {
            true => env::var(reference).map_err(|_| "is not set"),
            false => Err("is not in `allowed_env` of the runner's file"),
        };
        match found {
            Ok(value) => {
                self.secrets.extend(secret_lines(&value));
                value
            }
            Err(reason) => {
                warnings.push(format!("`${{{reference}}}` in `env.{name}` is empty: {reference} {reason}"));
                String::new()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_plugin_sets_what_the_loader_or_the_runner_reads() {
        for name in ["LD_PRELOAD", "LD_AUDIT", "GLIBC_TUNABLES", "GCONV_PATH", "HOME", "HOOKGATE_TENANT"] {
            let written = BTreeMap::from([(name.to_owned(), "x".to_owned())]);
            let refused = resolve(&written, &[], &mut Vec::new()).err();
            assert_eq!(refused, Some(format!("a plugin can't set {name}: leave it out")));
        }
    }

    #[test]
    fn only_a_whole_reference_is_one_and_only_to_an_allowed_variable() {
        let written =
            [("A", "${CARGO_PKG_NAME}"), ("B", "x${CARGO_PKG_NAME}"), ("C", "${CARGO_PKG_VERSION}")];
        let written = written.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let (mut warnings, allowed) = (Vec::new(), ["CARGO_PKG_NAME".to_owned()]);
        let found = resolve(&written, &allowed, &mut warnings).expect("the names are valid");
        let value = |name: &str| found.variables[name].as_str();
        assert_eq!((value("A"), value("B"), value("C")), ("hookgate-runner", "x${CARGO_PKG_NAME}", ""));
        assert_eq!(value("CARGO_PKG_NAME"), "hookgate-runner");
        assert!(found.secrets.contains(&"hookgate-runner".to_owned()), "{:?}", found.secrets);
        assert_eq!(
            warnings,
            [
                "`${CARGO_PKG_VERSION}` in `env.C` is empty: CARGO_PKG_VERSION is not in `allowed_env` of the runner's file"
            ]
        );
    }
}
