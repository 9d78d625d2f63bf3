use super::*;

#[test]
fn models_that_search_by_themselves_are_refused_where_tools_are_judged() {
    let tools = GuardedPoints { results: true, ..GuardedPoints::default() };
    let others = GuardedPoints { request: true, answer: true, ..GuardedPoints::default() };
    for model in ["gpt-4o-search-preview-2025", "gpt-5-search-api", "vendor/m:online", "M:ONLINE"] {
        let error = check_model(model, tools, &[]).expect_err(model);
        assert_eq!((error.code, error.violations[0].pointer.as_str()), (Code::Unsupported, "/model"));
        check_model(model, others, &[]).expect("no tools are judged");
        check_model(model, tools, &["web_search".to_owned()]).expect("it is allowed");
    }
    check_model("search-online", tools, &[]).expect("another model");
}
