//! Addresses of plugins and gateways: `unix:///path` or `http://host:port`.

use std::path::PathBuf;

/// An address to listen on or connect to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// `unix:///path`: a Unix socket; the path is absolute.
    Unix(PathBuf),
    /// `http://host:port`: TCP without TLS. Port 0 takes a free port.
    Tcp(String),
}

/// The text is not an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` isn't an address: write unix:///absolute/path or http://host:port")]
pub struct AddressError(String);

impl AddressError {
    pub(crate) fn new(text: &str) -> Self {
        AddressError(text.to_owned())
    }
}

impl std::str::FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let error = || AddressError::new(text);
        if let Some(path) = text.strip_prefix("unix://") {
            let named = path.starts_with('/') && !path.ends_with('/');
            return if named { Ok(Address::Unix(path.into())) } else { Err(error()) };
        }
        let authority = text.strip_prefix("http://").ok_or_else(error)?;
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        let (host, port) = authority.rsplit_once(':').ok_or_else(error)?;
        let plain = !host.is_empty() && !host.contains(['/', '@', '?', '#']);
        if plain && port.parse::<u16>().is_ok() {
            Ok(Address::Tcp(authority.to_owned()))
        } else {
            Err(error())
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix://{}", path.display()),
            Address::Tcp(authority) => write!(f, "http://{authority}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_they_are_read() {
        for text in
            ["unix:///run/a.sock", "http://127.0.0.1:0", "http://[::1]:8080", "http://localhost:65535"]
        {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        assert_eq!("http://a:1/".parse::<Address>().unwrap(), Address::Tcp("a:1".to_owned()));
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_remedy() {
        for text in [
            "",
            "unix:run/a.sock",
            "unix://a.sock",
            "unix:///run/",
            "127.0.0.1:80",
            "https://a:1",
            "http://a",
            "http://:1",
            "http://a:65536",
            "http://a/b:1",
            "http://user@a:1",
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains("write unix:///absolute/path or http://host:port"), "{text}: {error}");
        }
    }
}
