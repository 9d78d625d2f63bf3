//! Tests what `content-policy` and `response-sanitizer` redact, in both directions: what is hidden, and what is left
//! alone.

use proptest::prelude::*;

use super::*;

const KEY: &str = "sk_live-0123456789abcdefABCDEF01"; // 32 characters

fn redactor(emails: bool, api_keys: bool) -> Redactor {
    let emails = emails.then_some(Detector::Email);
    emails.into_iter().chain(api_keys.then_some(Detector::ApiKey)).collect()
}

fn redact(text: &str) -> String {
    redactor(true, true).redact(text, None).text.into_owned()
}

#[test]
fn email_addresses_are_redacted() {
    for (text, expected) in [
        ("write to ada.l+x@mail.example.com.", "write to [EMAIL]."),
        ("a@b.co,c@d.org", "[MAIL],[EMAIL]"),
        ("a@b.c", "a@b.c"),
        ("@example.com", "@example.com"),
        ("ada@localhost", "ada@localhost"),
        ("été ada@exämple.com", "été [EMAIL]"),
        ("jörg.müller@example.com", "[EMAIL]"),
        ("用户@例子.公司 ada@example.com으로", "[EMAIL] [EMAIL]으로"),
        ("日本ada@example.com語", "日本[EMAIL]語"),
    ] {
        assert_eq!(redact(text), expected, "{text}");
    }
}

#[test]
fn what_an_agent_runs_and_names_of_files_are_no_addresses() {
    for text in [
        "git clone git@github.com:acme/site.git",
        r#"["ssh", "-p", "22", "deploy@build.example.net"]"#,
        "ssh to deploy@build.example.net",
        "scp a.txt deploy@build.example.net:a.txt",
        "root@build.example.net:/etc# ls",
        "[deploy@build.example.net ~]$ ls",
        "https://0123abcd@o1.ingest.example.io/2",
        "getty@tty1.service icon@2x.png pkg@1.2.3-rc.beta",
        "x@w.transpose()",
        "q@k.transpose(-2, -1)",
        "x@self.weight.t()",
        "this@Main.startActivity(intent)",
        "[deploy@build.example.net]$ ls",
        "deploy@build.example.net repo % ls",
        "rsync -a ./ deploy@build.example.net::module",
        "nodes: [rabbit@a.example.net, rabbit@b.example.net]",
        "%s@example.com $USER@example.com .+@example.com",
        "Message-ID: <0123@mail.example.com>",
        "follow @ada@social.example.net",
        "uses: acme/site@release.next",
    ] {
        assert_eq!(redactor(true, false).redact(text, None).text, text);
    }
    for (text, expected) in [
        ("mail ada@example.com: please", "mail [EMAIL]: please"),
        ("ada@example.com:hunter2", "[EMAIL]:hunter2"),
        ("ssh-keygen -C ada@example.com", "ssh-keygen -C [EMAIL]"),
        ("ssh a@b.example.net mail ada@example.com", "ssh a@b.example.net mail [EMAIL]"),
        ("https://example.com/?to=ada@example.com", "https://example.com/?to=[EMAIL]"),
        ("ada@163.com", "[EMAIL]"),
        ("ada@example.com(work)", "[EMAIL](work)"),
        ("<ada@example.com> ada@example.com's", "<[EMAIL]> [EMAIL]'s"),
        ("ada@example.com # on call", "[EMAIL] # on call"),
        ("ada@example.comPhone: 1", "[EMAIL]: 1"),
        ("/users/ada@example.com/orders", "/users/[EMAIL]/orders"),
        ("the node of ada@example.com", "the node of [EMAIL]"),
    ] {
        assert_eq!(redactor(true, false).redact(text, None).text, expected);
    }
}

#[test]
fn long_runs_of_key_characters_are_redacted() {
    assert_eq!(KEY.len(), 32);
    assert_eq!(redact(KEY), "[REDACTED]");
    assert_eq!(redact(&KEY[1..]), &KEY[1..]);
    assert_eq!(redact(&format!("({KEY}{KEY})")), "([REDACTED])");
    assert_eq!(redact(&format!("é{KEY}é")), "é[REDACTED]é");
    assert_eq!(redact(&"-".repeat(40)), "-".repeat(40));
    assert_eq!(redact(&format!(r"a\n{KEY}\n%3D{KEY}")), r"a\n[REDACTED]\n%3D[REDACTED]");
    assert_eq!(redact(&format!(r"a\n{}", &KEY[1..])), r"a\[REDACTED]", "`n` makes it long enough");
}

#[test]
fn what_is_off_is_left_alone() {
    let text = format!("ada@example.com {KEY}");
    assert_eq!(redactor(false, false).redact(&text, None).text, text);
    let emails = redactor(true, false);
    let emails = emails.redact(&text, None);
    assert_eq!(emails.text.as_ref(), format!("[EMAIL] {KEY}"));
    assert_eq!((emails.count(Detector::Email), emails.count(Detector::ApiKey)), (1, 0));
    let keys = redactor(false, true);
    let keys = keys.redact(&text, None);
    assert_eq!(keys.text.as_ref(), "ada@example.com [REDACTED]");
    assert_eq!((keys.count(Detector::Email), keys.count(Detector::ApiKey)), (0, 1));
}

#[test]
fn an_element_may_have_white_space_or_be_cut() {
    for text in ["<password>V \n</password>", "<root><password>V"] {
        let redacted = redact(&text.replace('V', "abcdef123456"));
        assert_eq!(redacted, text.replace('V', "[REDACTED]"));
    }
}

#[test]
fn a_value_that_the_text_calls_a_key_is_redacted_from_12_characters_on() {
    const VALUE: &str = "abcdef123456"; // 12 characters
    for text in [
        "api_key=V",
        "api-key: V",
        "apikey = V",
        "API key: V",
        "X-API-Key: V",
        "apiKey: 'V'",
        "my_api_key := V",
        "token=V",
        "token: V",
        "access_token=V",
        "accessToken: \"V\"",
        "refresh-token => V",
        "id_token=V",
        "GITHUB_TOKEN=V",
        "export AWS_SECRET_ACCESS_KEY=V",
        "secret='V'",
        "private_key=`V`",
        "password: V",
        "PASSWORD=V",
        "passwd=V",
        "pwd=V",
        "if token == \"V\":",
        "os.environ[\"API_KEY\"] = \"V\"",
        "{\"api_key\": \"V\", \"n\": 1}",
        "{\"token\":\"V\"}",
        r#"{\"secret\": \"V\"}"#,
        r#"{\\\"secret\\\":\\\"V\\\"}"#,
        "https://example.com/?api_key=V&n=1",
        "?n=1&access_token=V#top",
        "(token=V)",
        "Authorization: Bearer V",
        "authorization=bearer V",
        "\"Authorization\": \"Bearer V\"",
        "Authorization: V",
        "-H 'Authorization: Basic V=='",
        "Authorization: token V",
        "Bearer V",
        "BEARER  V",
        "use bearer V.",
        r"a\nBearer V\n",
        "_bearer V_",
        "token=V.",
        "étoken=Vé",
        "token: secret=V",
        "Aws Secret Access Key = \"V\"",
        "**API Key**: V",
        "| API key | V |",
        "login --password V",
        "<password>V</password>",
        "setx API_KEY V",
        "machine h login ada password V",
        "{\"name\": \"API_KEY\", \"value\": \"V\"}",
    ] {
        let (value, hidden) = (text.replace('V', VALUE), redact(&text.replace('V', VALUE)));
        assert!(hidden.contains("[REDACTED]") && !hidden.contains(VALUE), "{value} -> {hidden}");
        let short = text.replace('V', "abc123");
        assert_eq!(redact(&short), short);
    }
}

#[test]
fn between_a_label_and_its_value_may_be_a_type_or_an_operator() {
    for before in [
        "'api_key' => '",
        "apiKey: string | undefined = '",
        "api_key: Optional[str] = '",
        "let apiKey: String? = '",
        "let api_key: &'static str = '",
        "env['API_KEY'] ||= '",
        "config.apiKey ??= '",
        "api_key += '",
        "char api_key[] = '",
        "<key>ApiKey</key>\n<string>",
    ] {
        let text = format!("{before}abcdef123456");
        assert_eq!(redact(&text), format!("{before}[REDACTED]"), "{text}");
    }
    for text in [
        "password: Final[str] = getpass()",
        "<user>:<password>@h.example.com:5672/%2f",
        "token: string | undefined = undefined",
    ] {
        assert_eq!(redact(text), text);
    }
}

#[test]
fn a_value_that_is_called_a_key_is_redacted_to_its_end_and_no_further() {
    for (text, expected) in [
        ("api_key=abcdef12345 Bearer abcdef12345", "api_key=abcdef12345 Bearer abcdef12345"),
        ("api_key=abcdef123456&n=1", "api_key=[REDACTED]&n=1"),
        ("{\"token\": \"abcdef123456\", \"n\": 1}", "{\"token\": \"[REDACTED]\", \"n\": 1}"),
        ("Authorization: Bearer abc.DEF-123_456~+/== and", "Authorization: Bearer [REDACTED] and"),
        ("The token: abcdef123456.", "The token: [REDACTED]."),
        ("password=p4ss!w%rd$#^*?+x", "password=[REDACTED]"),
        ("api_key=abcdefghijkl, token='abcdefghijkl'", "api_key=[REDACTED], token='[REDACTED]'"),
        ("api_key: abcdefghijkl", "api_key: [REDACTED]"),
        ("Bearer abcdefghijklmnop", "Bearer [REDACTED]"),
        ("Bearer 0123456789abcdefghijklmnopqrstu", "Bearer [REDACTED]"),
        ("token: secret_0123456789: abcdef123456", "token: [REDACTED]: abcdef123456"),
        ("token: my_1st_secret: abcdef123456", "token: [REDACTED]: [REDACTED]"),
        ("token=a.b.cdefghijk123", "token=[REDACTED]"),
    ] {
        assert_eq!(redact(text), expected, "{text}");
    }
}

#[test]
fn a_password_with_the_word_of_a_placeholder_is_one() {
    for password in [
        "ThereIsN0Exit!42",
        "Whereabouts77x",
        "fake-Plastic7Trees",
        "enter!Sandman1991",
        "here.Comes7Sun",
        "xxxx9Kq2mVbT7",
    ] {
        assert!(!redact(&format!("password={password}")).contains(password), "{password}");
    }
}

#[test]
fn prose_code_and_lines_are_no_keys() {
    for text in [
        "the token: something",
        "the token: authentication",
        "The secret: perseverance and patience.",
        "password: at least twelve characters",
        "Use bearer authentication.",
        "Bearer authorization",
        "bearer tokens",
        "token: CancellationToken,",
        "password: Option<String>",
        "secret: SecretString",
        "token: &'static str",
        "token=getAccessToken()",
        "api_key=process.env.OPENAI_API_KEY",
        "api_key=os.environ[\"OPENAI_API_KEY\"]",
        "apiKey: process.env.OPENAI_API_KEY",
        "password = settings.DATABASE_PASSWORD",
        "token=$GITHUB_TOKEN_VALUE",
        "token=${GITHUB_TOKEN_VALUE}",
        "token: ${{ secrets.GITHUB_TOKEN }}",
        "api_key=<your-api-key-here>",
        "token = await authenticate(user)",
        "token::authenticate_user(x)",
        "max_tokens=100000000000",
        "tokenizer=abcdef123456",
        "token_count: 123456789012",
        "token\n=abcdef123456",
        "token =\nabcdef123456",
        "Bearer\nabcdef123456",
        "password=****************",
        "password: ____________________",
        "password=________________",
        "token\n===============",
        "| token | description of abcdef123456 |",
        "| api_key | :--------------: |",
        "token:----------------",
        "the forbearer abcdef123456",
        "bearer of abcdef123456",
        "monkey=abcdef123456",
        "secret = \"team/prod/anthropic\"",
        "password: /run/secrets/db_password1",
        "api_key: your-api-key-here-123",
        "api_key=YOUR_OPENAI_API_KEY",
        "next_page_token=abcdef123456",
        "https://x-access-token:abcdef@h",
        "key=abcdef123456",
    ] {
        assert_eq!(redact(text), text);
    }
    for line in ["-", "_", "=", "-_", "- ", "+---", "|---", "*", "~", "#", ".", "=-"] {
        let line = line.repeat(70);
        for text in
            [line.clone(), format!("Title\n{line}\ntext"), format!("a{line}b"), format!("Name: {line} Date")]
        {
            assert_eq!(redact(&text), text);
        }
    }
    assert_eq!(redact(&"-".repeat(35)), "-".repeat(35));
    assert_eq!(redact(&format!("a{}b", "-".repeat(35))), format!("a{}b", "-".repeat(35)));
}

#[test]
fn a_key_between_hyphens_is_redacted_and_so_are_uuids_and_hashes() {
    for text in [
        format!("-----{KEY}-----"),
        format!("{KEY}{}end", "-".repeat(100)),
        "550e8400-e29b-41d4-a716-446655440000".to_owned(),
        "da39a3ee5e6b4b0d3255bfef95601890afd80709".to_owned(),
    ] {
        let hidden = redact(&text);
        assert!(
            hidden.contains("[REDACTED]") && !hidden.contains(|c: char| c.is_ascii_digit()),
            "{text} -> {hidden}"
        );
    }
}

#[test]
fn a_mask_makes_no_key_of_what_is_beside_it() {
    let text = format!("{}-.a-api_key 0aAuthorization", "_000a0AA".repeat(4));
    let once = redact(&text);
    assert_eq!((once.as_str(), redact(&once)), ("[REDACTED]-.a-api_key 0aAuthorization", once.clone()));
    let text = format!("api_key:0aaa0a0_AaA_.{}...-a-a", "0A_aaaAA".repeat(4));
    let once = redact(&text);
    assert_eq!((once.as_str(), redact(&once)), ("api_key:0aaa0a0_AaA_.[REDACTED]...-a-a", once.clone()));
    assert_eq!(redact(&format!("{KEY}_!ada@example.com")), "[REDACTED]![EMAIL]");
    assert_eq!(redact(&format!("-@{KEY}.ada@example.com")), "-@[EMAIL]");
    assert_eq!(redact(&format!("{KEY}.@a.ada@example.com")), "[REDACTED].@[EMAIL]");
    assert_eq!(redact("ada@example.comtoken:._0_A0_AA_aA0."), "[EMAIL]:[REDACTED].");
    assert_eq!(redact("ada!ada@irc.example.com"), "ada!ada@irc.example.com");
    assert_eq!(redact("login (--api-key 0aAuthorization)"), "login (--api-key [REDACTED])");
}

proptest! {
    #[test]
    fn redaction_is_idempotent(
        text in "([a-z0-9@._é -]{0,12}|ada@example\\.com|[A-Za-z0-9_-]{30,70}|-{30,40}|@|\\.|[^a]\
                  |(api_key|token|secret|Bearer|Authorization)|[:=\"' .$(]|[a-z.-]{12,16}|[A-Za-z0-9_]{12,40}){0,12}",
        emails: bool,
        api_keys: bool,
    ) {
        let redactor = redactor(emails, api_keys);
        let once = redactor.redact(&text, None);
        let twice = redactor.redact(&once.text, None);
        prop_assert!(!twice.is_changed(), "{:?} -> {:?} -> {:?}", text, once.text, twice.text);
    }

    #[test]
    fn no_text_grows(
        text in "(a@b\\.cc|[a-z]{1,2}@[a-z]\\.[a-z]{2,3}|[A-Za-z0-9_-]{30,34}|[@. é=:]|token|Bearer |[a-z0-9]{11,13}){0,12}",
        emails: bool,
        api_keys: bool,
    ) {
        let redacted = redactor(emails, api_keys).redact(&text, None).text.into_owned();
        prop_assert!(redacted.len() <= text.len(), "{:?} -> {:?}", text, redacted);
    }

    #[test]
    fn a_text_without_at_signs_and_long_words_is_untouched(text in "([^@]{0,1}[a-z]{0,20} ){0,10}") {
        let redactor = redactor(true, true);
        let redacted = redactor.redact(&text, None);
        prop_assert!(!redacted.is_changed());
        prop_assert_eq!(&*redacted.text, text.as_str());
    }
}
