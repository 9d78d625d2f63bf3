use super::*;

#[test]
fn models_that_run_tools_by_themselves_are_refused_where_tools_are_judged() {
    let tools = GuardedPoints { results: true, ..GuardedPoints::default() };
    let others = GuardedPoints { request: true, answer: true, ..GuardedPoints::default() };
    for (model, entry) in [
        ("gpt-4o-search-preview-2025", "web_search"),
        ("perplexity/sonar-pro", "web_search"),
        ("gpt-5-search-api", "web_search"),
        ("vendor/m:online", "web_search"),
        ("M:ONLINE", "web_search"),
        ("groq/compound-mini", "compound"),
        ("compound-beta", "compound"),
    ] {
        let error = check_model(model, tools, &[]).expect_err(model);
        assert_eq!((error.code, error.violations[0].pointer.as_str()), (Code::Unsupported, "/model"));
        check_model(model, others, &[]).expect("no tools are judged");
        check_model(model, tools, &[entry.to_owned()]).expect("it is allowed");
    }
    let both = "groq/compound:online";
    check_model(both, tools, &["web_search".to_owned()]).expect_err("it runs code, too");
    check_model(both, tools, &["web_search".to_owned(), "compound".to_owned()]).expect("both are allowed");
    for other in ["search-online", "a-compound-model"] {
        check_model(other, tools, &[]).expect("another model");
    }
}
