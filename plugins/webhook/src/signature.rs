//! Signatures as Standard Webhooks describes them: HMAC-SHA256 over the id, the time and the body, joined by dots.

use aws_lc_rs::hmac::{self, HMAC_SHA256};
use base64::{
    Engine,
    alphabet::STANDARD as ALPHABET,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::STANDARD},
};
use hookgate_sdk::InitError;
use secrecy::{ExposeSecret, SecretString};

const SECRET_PREFIX: &str = "whsec_";
const MIN_KEY_BYTES: usize = 24;
const MAX_KEY_BYTES: usize = 64;

/// Reads keys with and without padding.
const LENIENT_BASE64: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The key of the signature, and the previous one during a rotation.
pub(crate) struct SigningKeys(Vec<hmac::Key>);

impl SigningKeys {
    pub(crate) fn new(secret: &SecretString, previous: Option<&SecretString>) -> Result<Self, InitError> {
        let mut keys = vec![read_key("secret", secret)?];
        if let Some(previous) = previous {
            keys.push(read_key("previous_secret", previous)?);
        }
        Ok(SigningKeys(keys))
    }

    /// The value of `webhook-signature`: one signature for each key.
    pub(crate) fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let prefix = format!("{id}.{timestamp}.");
        let signatures = self.0.iter().map(|key| {
            let mut context = hmac::Context::with_key(key);
            context.update(prefix.as_bytes());
            context.update(body);
            format!("v1,{}", STANDARD.encode(context.sign()))
        });
        signatures.collect::<Vec<_>>().join(" ")
    }
}

fn read_key(field: &str, secret: &SecretString) -> Result<hmac::Key, InitError> {
    let decoded = secret
        .expose_secret()
        .strip_prefix(SECRET_PREFIX)
        .and_then(|encoded| LENIENT_BASE64.decode(encoded).ok())
        .filter(|key| (MIN_KEY_BYTES..=MAX_KEY_BYTES).contains(&key.len()));
    let expected = "`whsec_` and 24 to 64 random bytes in base64; make one with \
                    `echo whsec_$(openssl rand -base64 32)`";
    let decoded = decoded.ok_or_else(|| InitError::config(field, expected))?;
    Ok(hmac::Key::new(HMAC_SHA256, &decoded))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn secret(bytes: &[u8]) -> SecretString {
        format!("{SECRET_PREFIX}{}", STANDARD.encode(bytes)).into()
    }

    #[test]
    fn a_signature_is_that_of_the_standards_example() {
        let keys =
            SigningKeys::new(&"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned().into(), None).unwrap();
        let signature = keys.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn two_secrets_make_two_signatures() {
        let (new, old) = (secret(&[1; 32]), secret(&[2; 64]));
        let both = SigningKeys::new(&new, Some(&old)).unwrap().sign("id", 1, b"body");
        let one = |secret| SigningKeys::new(secret, None).unwrap().sign("id", 1, b"body");
        assert_eq!(both, format!("{} {}", one(&new), one(&old)));
    }

    #[test]
    fn a_secret_of_another_form_or_length_is_refused_without_showing_it() {
        let encoded = STANDARD.encode([7; 32]);
        let without_padding = format!("{SECRET_PREFIX}{}", encoded.trim_end_matches('='));
        assert!(SigningKeys::new(&without_padding.into(), None).is_ok());
        for text in [
            encoded.clone(),
            format!("{SECRET_PREFIX}{}", STANDARD.encode([7; 23])),
            format!("{SECRET_PREFIX}{}", STANDARD.encode([7; 65])),
            format!("{SECRET_PREFIX}not base64!"),
            String::new(),
        ] {
            let error = SigningKeys::new(&text.clone().into(), None).err().expect("it is refused");
            let message = format!("{error:?}");
            assert!(message.contains("`secret`") && message.contains("openssl rand"), "{message}");
            assert!(text.len() < 10 || !message.contains(&text), "{message}");
            let error = SigningKeys::new(&secret(&[1; 32]), Some(&text.into())).err().expect("refused");
            assert!(format!("{error:?}").contains("`previous_secret`"), "{error:?}");
        }
    }

    proptest! {
        #[test]
        fn the_id_the_time_the_body_and_the_key_change_the_signature(
            key in prop::collection::vec(any::<u8>(), 24..=64), id in "[a-z0-9-]{1,40}", time in 0i64..1 << 40,
            body in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let keys = SigningKeys::new(&secret(&key), None).unwrap();
            let signature = keys.sign(&id, time, &body);
            let mut other_key = key.clone();
            other_key[0] ^= 1;
            let mut other_body = body.clone();
            other_body.push(b' ');
            prop_assert_eq!(&signature, &keys.sign(&id, time, &body));
            prop_assert_ne!(&signature, &keys.sign(&format!("{id}x"), time, &body));
            prop_assert_ne!(&signature, &keys.sign(&id, time + 1, &body));
            prop_assert_ne!(&signature, &keys.sign(&id, time, &other_body));
            prop_assert_ne!(&signature, &SigningKeys::new(&secret(&other_key), None).unwrap().sign(&id, time, &body));
        }
    }
}
