//! Makes the values that placeholders of the corpus stand for: the same ones in each run.
//!
//! They are put together here, so that no scanner of sources takes one for a real key.

mod further;

use fastrand::Rng;

const LETTERS_AND_DIGITS: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const BASE64: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/";
const URL_BASE64: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
const UPPER_AND_DIGITS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const HEX: &str = "0123456789abcdef";
const DIGITS: &str = "0123456789";

const FIRST: [&str; 12] = [
    "ada", "grace", "alan", "edsger", "barbara", "donald", "linus", "margaret", "ken", "radia", "tim", "joan",
];
const LAST: [&str; 12] = [
    "lovelace", "hopper", "turing", "dijkstra", "liskov", "knuth", "miller", "hamilton", "thompson",
    "perlman", "berners", "clarke",
];
const LOGINS: [&str; 8] = ["deploy", "admin", "ubuntu", "ci", "app", "postgres", "ec2-user", "backup"];
const DOMAINS: [&str; 8] = [
    "acme.io",
    "example.com",
    "globex.net",
    "initech.co.uk",
    "mail.example.org",
    "umbrella.dev",
    "stark.app",
    "wayne-corp.de",
];
const HOSTS: [&str; 6] = [
    "build.example.net",
    "db01.example.com",
    "api.acme.io",
    "web-3.eu.globex.net",
    "cache.initech.co.uk",
    "gw.internal.example.org",
];
const ORGS: [&str; 6] = ["acme", "globex", "initech", "umbrella", "stark-labs", "waynecorp"];
const REPOS: [&str; 6] = ["site", "billing-api", "infra", "web.app", "mobile", "data_tools"];
const WORDS: [&str; 24] = [
    "orders", "invoice", "report", "cache", "worker", "session", "billing", "search", "harbor", "window",
    "garden", "profile", "staging", "metrics", "export", "ledger", "basket", "travel", "weather", "library",
    "planet", "market", "signal", "bridge",
];

/// A source of values for one line.
#[derive(Debug)]
pub(crate) struct Values {
    rng: Rng,
}

impl Values {
    /// The values of a template's line depend on its text alone, so other lines may come and go.
    pub(crate) fn new(template: &str, repetition: u64) -> Self {
        let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Values { rng: Rng::with_seed(template.bytes().fold(0xcbf2_9ce4_8422_2325 ^ repetition, fnv)) }
    }

    /// The value that a placeholder stands for, if there is one with this name.
    pub(crate) fn make(&mut self, name: &str) -> Option<String> {
        self.personal(name)
            .or_else(|| self.secret(name))
            .or_else(|| self.harmless(name))
            .or_else(|| self.make_further(name))
    }

    fn personal(&mut self, name: &str) -> Option<String> {
        Some(match name {
            "email" => match self.rng.u8(..4) {
                0 => format!("{}@{}", self.pick(&FIRST), self.pick(&DOMAINS)),
                1 => format!("{}.{}@{}", self.pick(&FIRST), self.pick(&LAST), self.pick(&DOMAINS)),
                2 => format!("{}_{}@{}", self.pick(&LAST), self.digits(2), self.pick(&DOMAINS)),
                _ => format!("{}+{}@{}", self.pick(&FIRST), self.pick(&WORDS), self.pick(&DOMAINS)),
            },
            "card" => self.card(""),
            "card_spaced" => self.card(" "),
            "card_hyphens" => self.card("-"),
            "card_dots" => self.card("."),
            "card_nbsp" => self.card("\u{a0}"),
            "card_nbhyphens" => self.card("\u{2011}"),
            "iban" => self.iban(),
            "iban_spaced" => {
                let iban = self.iban();
                let groups: Vec<&str> =
                    (0..iban.len()).step_by(4).map(|at| &iban[at..iban.len().min(at + 4)]).collect();
                groups.join(" ")
            }
            _ => return None,
        })
    }

    fn secret(&mut self, name: &str) -> Option<String> {
        Some(match name {
            "password" => self.password(),
            "key20" => self.key(20),
            "key24" => self.key(24),
            "key32" => self.key(32),
            "key40" => self.key(40),
            "hexkey32" => self.of(HEX, 32),
            "aws_secret" => self.of(BASE64, 40),
            "aws_id" => format!("{}{}", self.pick(&["AKIA", "ASIA"]), self.of(UPPER_AND_DIGITS, 16)),
            "jwt" => format!(
                "eyJ{}.eyJ{}.{}",
                self.of(URL_BASE64, 33),
                self.of(URL_BASE64, 60),
                self.of(URL_BASE64, 43)
            ),
            "pem" => {
                let mut lines: Vec<_> = (0..self.rng.usize(3..7)).map(|_| self.of(BASE64, 64)).collect();
                lines.push(self.of(BASE64, 26) + "==");
                lines.join("\n")
            }
            "anthropic" => format!("sk-ant-api03-{}AA", self.of(URL_BASE64, 93)),
            "azure_storage" => self.of(BASE64, 86) + "==",
            "azure_sig" => {
                let base64 = self.of(BASE64, 43) + "=";
                base64.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D")
            }
            "digitalocean" => format!("dop_v1_{}", self.of(HEX, 64)),
            "docker" => format!("dckr_pat_{}", self.of(URL_BASE64, 27)),
            "github" => format!("{}_{}", self.pick(&["ghp", "gho", "ghs"]), self.key(36)),
            "github_pat" => format!("github_pat_{}_{}", self.key(22), self.key(59)),
            "gitlab" => format!("glpat-{}", self.of(URL_BASE64, 20)),
            "google" => format!("AIza{}", self.of(URL_BASE64, 35)),
            "huggingface" => format!("hf_{}", self.key(34)),
            "npm" => format!("npm_{}", self.key(36)),
            "openai" => format!("sk-{}", self.key(48)),
            "openai_proj" => format!("sk-proj-{}", self.of(URL_BASE64, 120)),
            "pypi" => format!("pypi-AgEIcHlwaS5vcmc{}", self.of(URL_BASE64, 120)),
            "sendgrid" => format!("SG.{}.{}", self.of(URL_BASE64, 22), self.of(URL_BASE64, 43)),
            "slack" => format!("xoxb-{}-{}-{}", self.digits(12), self.digits(13), self.key(24)),
            "slack_hook" => {
                let (team, channel) = (self.of(UPPER_AND_DIGITS, 10), self.of(UPPER_AND_DIGITS, 10));
                format!("https://hooks.slack.com/services/T{team}/B{channel}/{}", self.key(24))
            }
            "stripe" => format!("{}_{}", self.pick(&["sk_live", "sk_test", "rk_live"]), self.key(24)),
            "stripe_hook" => format!("whsec_{}", self.key(32)),
            "telegram" => format!("{}:AA{}", self.digits(10), self.of(URL_BASE64, 33)),
            "twilio" => format!("SK{}", self.of(HEX, 32)),
            "vault" => format!("hvs.{}", self.of(URL_BASE64, 90)),
            _ => return None,
        })
    }

    fn harmless(&mut self, name: &str) -> Option<String> {
        Some(match name {
            "name" => format!("{} {}", capital(self.pick(&FIRST)), capital(self.pick(&LAST))),
            "first" => self.pick(&FIRST).to_owned(),
            "user" => self.pick(&LOGINS).to_owned(),
            "host" => self.pick(&HOSTS).to_owned(),
            "domain" => self.pick(&DOMAINS).to_owned(),
            "org" => self.pick(&ORGS).to_owned(),
            "repo" => self.pick(&REPOS).to_owned(),
            "word" => self.pick(&WORDS).to_owned(),
            "ident" => {
                format!("{}{}{}", self.pick(&WORDS), capital(self.pick(&WORDS)), capital(self.pick(&WORDS)))
            }
            "snake" => format!("{}_{}", self.pick(&WORDS), self.pick(&WORDS)),
            "slug" => format!("{}-{}-{}", self.pick(&WORDS), self.pick(&WORDS), self.pick(&WORDS)),
            "path" => format!("src/{}/{}_{}.rs", self.pick(&WORDS), self.pick(&WORDS), self.pick(&WORDS)),
            "file" => {
                format!("{}.{}", self.pick(&WORDS), self.pick(&["txt", "json", "yaml", "py", "tar.gz"]))
            }
            "int" => self.rng.u32(1..1_000_000).to_string(),
            "digits10" => self.digits(10),
            "digits13" => self.number(13),
            "digits16" => self.number(16),
            "phone" => format!("+49 30 {} {}", self.digits(4), self.digits(3)),
            "date" => format!("2026-{:02}-{:02}", self.rng.u8(1..13), self.rng.u8(1..29)),
            "time" => format!("{:02}:{:02}:{:02}", self.rng.u8(..24), self.rng.u8(..60), self.rng.u8(..60)),
            "ip" => format!("10.{}.{}.{}", self.rng.u8(..), self.rng.u8(..), self.rng.u8(1..255)),
            "ver" => format!("{}.{}.{}", self.rng.u8(..10), self.rng.u8(..30), self.rng.u8(..30)),
            "uuid" => format!(
                "{}-{}-4{}-a{}-{}",
                self.of(HEX, 8),
                self.of(HEX, 4),
                self.of(HEX, 3),
                self.of(HEX, 3),
                self.of(HEX, 12)
            ),
            "hex7" => self.of(HEX, 7),
            "hex32" => self.of(HEX, 32),
            "hex40" => self.of(HEX, 40),
            "hex64" => self.of(HEX, 64),
            "sha256_b64" => self.of(BASE64, 43) + "=",
            "price" => format!("{}.{}", self.rng.u32(1..5000), self.digits(2)),
            "url" => format!("https://{}/{}/{}", self.pick(&HOSTS), self.pick(&WORDS), self.rng.u32(1..9999)),
            _ => return None,
        })
    }

    fn pick<'l>(&mut self, list: &[&'l str]) -> &'l str {
        list[self.rng.usize(..list.len())]
    }

    fn of(&mut self, characters: &str, length: usize) -> String {
        let characters = characters.as_bytes();
        (0..length).map(|_| char::from(characters[self.rng.usize(..characters.len())])).collect()
    }

    fn digits(&mut self, length: usize) -> String {
        self.of("123456789", 1) + &self.of(DIGITS, length - 1)
    }

    /// Letters and digits, at least two of which are digits.
    fn key(&mut self, length: usize) -> String {
        let key = self.of(LETTERS_AND_DIGITS, length);
        if key.bytes().filter(u8::is_ascii_digit).count() < 2 { self.key(length) } else { key }
    }

    fn password(&mut self) -> String {
        let length = self.rng.usize(12..21);
        let mut password = self.key(length);
        if self.rng.bool() {
            let (at, sign) = (self.rng.usize(1..length - 1), self.pick(&["!", "_", "-", "."]));
            password.replace_range(at..=at, sign);
        }
        let has = |is: fn(&u8) -> bool| password.bytes().any(|byte| is(&byte));
        if has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic) { password } else { self.password() }
    }

    fn card(&mut self, separator: &str) -> String {
        let (prefix, length) = [("4", 16), ("52", 16), ("37", 15), ("6011", 16)][self.rng.usize(..4)];
        let mut digits = prefix.to_owned() + &self.of(DIGITS, length - 1 - prefix.len());
        let check = (0..10).find(|check| is_luhn(&format!("{digits}{check}")));
        digits.push_str(&check.expect("one digit is right").to_string());
        let groups: &[usize] = if length == 15 { &[4, 6, 5] } else { &[4; 4] };
        let (mut card, mut at) = (Vec::new(), 0);
        for group in groups {
            card.push(&digits[at..at + group]);
            at += group;
        }
        card.join(separator)
    }

    /// A number that isn't a card's.
    fn number(&mut self, length: usize) -> String {
        let digits = self.digits(length);
        if is_luhn(&digits) { self.number(length) } else { digits }
    }

    fn iban(&mut self) -> String {
        let (country, account) = match self.rng.u8(..3) {
            0 => ("DE", self.of(DIGITS, 18)),
            1 => ("NL", "INGB".to_owned() + &self.of(DIGITS, 10)),
            _ => ("FR", self.of(DIGITS, 23)),
        };
        iban_of(country, &account)
    }
}

/// An IBAN with the right check digits.
fn iban_of(country: &str, account: &str) -> String {
    let text = format!("{account}{country}00");
    let remainder = text.chars().fold(0, |remainder, char| {
        let value = char.to_digit(36).expect("a letter or a digit");
        (remainder * if value > 9 { 100 } else { 10 } + value) % 97
    });
    format!("{country}{:02}{account}", 98 - remainder)
}

fn capital(word: &str) -> String {
    word[..1].to_uppercase() + &word[1..]
}

/// Whether the check digit of a card's number is right.
fn is_luhn(digits: &str) -> bool {
    let doubled = |digit: u32| digit * 2 / 10 + digit * 2 % 10;
    let digits = digits.bytes().rev().map(|digit| u32::from(digit - b'0')).enumerate();
    digits.map(|(at, digit)| if at % 2 == 0 { digit } else { doubled(digit) }).sum::<u32>().is_multiple_of(10)
}
