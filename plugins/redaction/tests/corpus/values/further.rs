//! Makes values of more shapes: other issuers, countries and prefixes, passwords with signs, and numbers that only look alike.

use super::{
    BASE64, DIGITS, HEX, LETTERS_AND_DIGITS, UPPER_AND_DIGITS, URL_BASE64, Values, WORDS, iban_of, is_luhn,
};

const LOWER_AND_DIGITS: &str = "abcdefghijklmnopqrstuvwxyz0123456789";
const LOWER: &str = "abcdefghijklmnopqrstuvwxyz";
const INTERNATIONAL: [&str; 6] = [
    "jürgen.müller@example.de",
    "józef.łukasik@przyklad.pl",
    "josé.garcía@ejemplo.es",
    "søren@eksempel.dk",
    "info@bücher.example",
    "françois+liste@exemple.fr",
];
/// Prefixes of cards, with their length and their groups.
const CARDS: [(&str, usize, &[usize]); 6] = [
    ("2223", 16, &[4, 4, 4, 4]),
    ("3530", 16, &[4, 4, 4, 4]),
    ("36", 14, &[4, 6, 4]),
    ("65", 16, &[4, 4, 4, 4]),
    ("62", 16, &[4, 4, 4, 4]),
    ("34", 15, &[4, 6, 5]),
];

impl Values {
    /// The value that a placeholder stands for, if there is one with this name.
    pub(super) fn make_further(&mut self, name: &str) -> Option<String> {
        self.further_personal(name)
            .or_else(|| self.further_password(name))
            .or_else(|| self.further_key(name))
            .or_else(|| self.further_number(name))
            .or_else(|| self.further_run(name))
    }

    fn further_personal(&mut self, name: &str) -> Option<String> {
        Some(match name {
            "email_intl" => self.pick(&INTERNATIONAL).to_owned(),
            "card_any" => self.other_card(""),
            "card_any_spaced" => self.other_card(" "),
            "iban_any" => self.other_iban(),
            "iban_any_spaced" => grouped(&self.other_iban(), " "),
            "iban_hyphens" => grouped(&self.other_iban(), "-"),
            // One more than the right check digits, which are never 99.
            "iban_bad" => {
                let iban = self.other_iban();
                let check: u32 = iban[2..4].parse().expect("two digits");
                format!("{}{:02}{}", &iban[..2], check + 1, &iban[4..])
            }
            _ => return None,
        })
    }

    fn further_password(&mut self, name: &str) -> Option<String> {
        Some(match name {
            "shortpw" => self.short_password(4..9),
            "url_password_short" => self.short_password(3..9),
            "url_password" => self.password_with(&["!", "#", "*", "+", "=", "~", "-", "_", "."]),
            "url_password_at" => self.password_with(&["@", "/"]),
            "password_signs" => self.password_with(&["!", "@", "#", "^", "*", "?", "+", "~", "."]),
            "password_quoted" => self.password_with(&["&", "(", ")", ";", ",", "|", "=", ":", "!", "#"]),
            "password_quoted_xml" => self.password_with(&["(", ")", ";", ",", "|", "=", ":", "!", "#"]),
            "passphrase" => {
                let number = self.digits(2);
                format!("{}-{}-{number}-{}", self.pick(&WORDS), self.pick(&WORDS), self.pick(&WORDS))
            }
            _ => return None,
        })
    }

    fn further_key(&mut self, name: &str) -> Option<String> {
        Some(match name {
            "hexkey64" => self.of(HEX, 64),
            "random48" => self.key(48),
            "random64" => self.key(64),
            "jwt_long" => {
                let kid = self.of(URL_BASE64, 24);
                let claims = self.of(URL_BASE64, 180);
                format!("eyJ{}{kid}.eyJ{claims}.{}", "hbGciOiJSUzI1NiIsImtpZCI6I", self.of(URL_BASE64, 342))
            }
            "pem_ec" => [64, 64, 34].map(|length| self.of(BASE64, length)).join("\n") + "==",
            "pem_escaped" => self.make("pem")?.replace('\n', "\\n"),
            "pem_indented" => format!("    {}", self.make("pem")?.replace('\n', "\n    ")),
            "pem_plus" => format!("+{}", self.make("pem")?.replace('\n', "\n+")),
            "aws_other" => format!("{}{}", self.pick(&["ABIA", "ACCA"]), self.of(UPPER_AND_DIGITS, 16)),
            "digitalocean_other" => format!("{}_v1_{}", self.pick(&["doo", "dor"]), self.of(HEX, 64)),
            "docker_org" => format!("dckr_oat_{}", self.key(32)),
            "github_other" => format!("{}_{}", self.pick(&["ghu", "ghr"]), self.key(36)),
            "gitlab_other" => {
                format!("{}-{}", self.pick(&["glrt", "gldt", "glptt", "glft"]), self.of(URL_BASE64, 20))
            }
            "google_oauth" => format!("ya29.a0{}", self.of(URL_BASE64, 160)),
            "google_secret" => format!("GOCSPX-{}", self.of(URL_BASE64, 28)),
            "openai_other" => {
                format!("{}-{}", self.pick(&["sk-svcacct", "sk-admin"]), self.of(URL_BASE64, 74))
            }
            "openrouter" => format!("sk-or-v1-{}", self.of(HEX, 64)),
            "slack_other" => {
                let prefix = self.pick(&["xoxp", "xoxa", "xoxr"]);
                format!("{prefix}-{}-{}-{}", self.digits(12), self.digits(12), self.of(HEX, 32))
            }
            "slack_app" => {
                format!("xapp-1-A{}-{}-{}", self.of(UPPER_AND_DIGITS, 10), self.digits(13), self.of(HEX, 64))
            }
            "stripe_other" => format!("rk_test_{}", self.key(24)),
            "vault_other" => format!("{}.{}", self.pick(&["hvb", "hvr"]), self.of(URL_BASE64, 100)),
            _ => return None,
        })
    }

    fn further_number(&mut self, name: &str) -> Option<String> {
        Some(match name {
            // Right check digits, but no issuer of cards has the prefix, or not with this length.
            "luhn_plain" => {
                let prefix = self.pick(&["7", "0"]);
                self.with_check_digit(prefix, 16)
            }
            "imei" => self.with_check_digit("35", 15),
            "iccid" => self.with_check_digit("8949", 19),
            "ean" => format!("978{}", self.of(DIGITS, 10)),
            "snowflake" => format!("17{}", self.of(DIGITS, 17)),
            "epoch_ms" => format!("1772{}", self.of(DIGITS, 9)),
            "epoch_ns" => format!("1772{}", self.of(DIGITS, 15)),
            _ => return None,
        })
    }

    fn further_run(&mut self, name: &str) -> Option<String> {
        let (characters, length) = match name {
            "hex2" => (HEX, 2),
            "hex6" => (HEX, 6),
            "hex12" => (HEX, 12),
            "hex16" => (HEX, 16),
            "hex17" => (HEX, 17),
            "hex24" => (HEX, 24),
            "id14" => (LETTERS_AND_DIGITS, 14),
            "upper10" => (UPPER_AND_DIGITS, 10),
            "upper16" => (UPPER_AND_DIGITS, 16),
            "nix32" => (LOWER_AND_DIGITS, 32),
            "sha256_b64_bare" => (BASE64, 43),
            "sha512_b64" => return Some(self.of(BASE64, 86) + "=="),
            "ssh_ed25519" => return Some("AAAAC3NzaC1lZDI1NTE5AAAAI".to_owned() + &self.of(BASE64, 43)),
            "ssh_rsa" => return Some("AAAAB3NzaC1yc2EAAAADAQABAAAB".to_owned() + &self.of(BASE64, 344)),
            "data_b64" => return Some("iVBORw0KGgoAAAANSUhEUgAA".to_owned() + &self.of(BASE64, 676)),
            "ulid" => return Some("01".to_owned() + &self.of(UPPER_AND_DIGITS, 24)),
            _ => return None,
        };
        Some(self.of(characters, length))
    }

    /// Begins with a letter and has a digit.
    fn short_password(&mut self, length: std::ops::Range<usize>) -> String {
        let (length, digit) = (self.rng.usize(length), self.of(DIGITS, 1));
        self.of(LOWER, 1) + &self.of(LETTERS_AND_DIGITS, length - 2) + &digit + &self.of(LOWER, 1)
    }

    /// Begins with a letter, has digits, and two of the signs.
    fn password_with(&mut self, signs: &[&str]) -> String {
        let (first, last) = (self.key(5), self.key(4));
        let (sign, other) = (self.pick(signs), self.pick(signs));
        self.of(LOWER, 1) + &first + sign + &self.key(4) + other + &last
    }

    fn with_check_digit(&mut self, prefix: &str, length: usize) -> String {
        let digits = prefix.to_owned() + &self.of(DIGITS, length - 1 - prefix.len());
        let numbers = (0..10).map(|check| format!("{digits}{check}"));
        numbers.into_iter().find(|number| is_luhn(number)).expect("one digit is right")
    }

    fn other_card(&mut self, separator: &str) -> String {
        let (prefix, length, groups) = CARDS[self.rng.usize(..CARDS.len())];
        let (digits, mut at) = (self.with_check_digit(prefix, length), 0);
        let groups = groups.iter().map(|group| {
            at += group;
            &digits[at - group..at]
        });
        groups.collect::<Vec<_>>().join(separator)
    }

    fn other_iban(&mut self) -> String {
        let (country, letters, digits) = [
            ("GB", "NWBK", 14),
            ("ES", "", 20),
            ("IT", "X", 22),
            ("PL", "", 24),
            ("AT", "", 16),
            ("CH", "", 17),
            ("BE", "", 12),
            ("SE", "", 20),
        ][self.rng.usize(..8)];
        let account = self.of(DIGITS, digits);
        iban_of(country, &format!("{letters}{account}"))
    }
}

fn grouped(iban: &str, separator: &str) -> String {
    let groups = (0..iban.len()).step_by(4).map(|at| &iban[at..iban.len().min(at + 4)]);
    groups.collect::<Vec<_>>().join(separator)
}
