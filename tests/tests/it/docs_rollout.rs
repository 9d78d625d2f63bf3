//! docs/rolling-out-a-rule.md: each stage shows what the page says, from the file of the page.

use super::docs_story::Story;

#[tokio::test]
async fn a_rule_is_observed_then_advised_then_enforced_and_taken_back_as_the_page_says() {
    let printed = Story::of("rolling-out-a-rule.md").await.told().await;
    for stage in [r#"hookgate_mode="observe""#, r#""outcome":"would_block""#, r#""decision":"block""#] {
        assert!(printed.contains(stage), "{stage}: {printed}");
    }
}
