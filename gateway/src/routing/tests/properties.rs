//! Compares random configurations with a naive implementation of the rules.

use std::collections::BTreeMap;

use proptest::{prelude::*, sample::subsequence};
use serde_json::{Value, json};

use super::*;

const PLUGINS: usize = 3;
const TENANTS: usize = 4;

#[derive(Debug, Clone)]
enum For {
    All,
    Labels(BTreeMap<String, String>),
    Tenant(usize),
}

#[derive(Debug, Clone)]
struct Rule {
    name: String,
    plugin: usize,
    whom: For,
    priority: i64,
    enabled: bool,
    overridable: bool,
}

#[derive(Debug, Clone)]
struct Listed {
    enabled: bool,
    labels: BTreeMap<String, String>,
    /// Indexes of rules.
    disable: Vec<usize>,
}

#[derive(Debug, Clone)]
struct Setup {
    plugins: [bool; PLUGINS],
    rules: Vec<Rule>,
    tenants: Vec<Listed>,
    accept: bool,
}

impl Setup {
    fn members(&self) -> Value {
        let plugins: Vec<_> = (0..PLUGINS)
            .map(|n| json!({ "name": format!("p{n}"), "builtin": "x", "enabled": self.plugins[n] }))
            .collect();
        let binding = |rule: &Rule| {
            let mut binding = json!({
                "name": rule.name, "plugin": format!("p{}", rule.plugin), "priority": rule.priority,
                "enabled": rule.enabled, "overridable": rule.overridable,
            });
            extend(
                &mut binding,
                match &rule.whom {
                    For::All => json!({ "tenant": "*" }),
                    For::Labels(labels) => json!({ "selector": labels }),
                    For::Tenant(n) => json!({ "tenant": format!("t{n}") }),
                },
            );
            binding
        };
        let tenant = |(n, tenant): (usize, &Listed)| {
            let names: Vec<_> = tenant.disable.iter().map(|at| &self.rules[*at].name).collect();
            json!({ "id": format!("t{n}"), "enabled": tenant.enabled, "labels": tenant.labels, "disable": names })
        };
        json!({
            "plugins": plugins,
            "tenants": {
                "unknown": if self.accept { "accept" } else { "refuse" },
                "list": self.tenants.iter().enumerate().map(tenant).collect::<Vec<_>>(),
            },
            "bindings": self.rules.iter().map(binding).collect::<Vec<_>>(),
        })
    }

    /// Whether `rule` applies to tenant `n`; `None` is an unlisted tenant.
    fn stands(&self, rule: &Rule, n: Option<usize>) -> bool {
        let meant = match (&rule.whom, n) {
            (For::All, _) => true,
            (For::Labels(wanted), Some(n)) => wanted
                .iter()
                .all(|(key, value)| self.tenants[n].labels.get(key).is_some_and(|have| have == value)),
            (For::Tenant(whose), Some(n)) => *whose == n,
            (_, None) => false,
        };
        let off = n.is_some_and(|n| {
            rule.overridable && self.tenants[n].disable.iter().any(|at| self.rules[*at].name == rule.name)
        });
        meant && !off && rule.enabled && self.plugins[rule.plugin]
    }

    /// Tenants that have a chain, with their ids.
    fn served(&self) -> Vec<(Option<usize>, String)> {
        let listed = (0..self.tenants.len()).filter(|n| self.tenants[*n].enabled);
        let mut served: Vec<_> = listed.map(|n| (Some(n), format!("t{n}"))).collect();
        served.extend(self.accept.then(|| (None, "stranger".to_owned())));
        served
    }

    fn expected(&self, n: Option<usize>) -> Vec<&Rule> {
        let mut rules: Vec<_> = self.rules.iter().filter(|rule| self.stands(rule, n)).collect();
        rules.sort_by_key(|rule| rule.priority);
        rules
    }

    fn clashes(&self) -> bool {
        self.served().iter().any(|(n, _)| {
            let priorities: Vec<_> = self.expected(*n).iter().map(|rule| rule.priority).collect();
            priorities.windows(2).any(|pair| pair[0] == pair[1])
        })
    }

    fn wrong_disables(&self) -> bool {
        self.tenants.iter().enumerate().any(|(n, tenant)| {
            tenant.disable.iter().any(|at| {
                let rule = &self.rules[*at];
                !rule.overridable || matches!(rule.whom, For::Tenant(whose) if whose != n)
            })
        })
    }
}

fn labels() -> impl Strategy<Value = BTreeMap<String, String>> {
    prop::collection::btree_map("plan|region", "x|y", 0..3)
}

fn rules(priorities: std::ops::Range<i64>) -> impl Strategy<Value = Vec<Rule>> {
    let whom = prop_oneof![
        2 => Just(For::All),
        2 => labels().prop_filter("an empty selector is refused", |labels| !labels.is_empty()).prop_map(For::Labels),
        2 => (0..TENANTS).prop_map(For::Tenant),
    ];
    let likely = || prop::bool::weighted(0.9);
    let rule = (0..PLUGINS, whom, priorities, likely(), any::<bool>());
    prop::collection::vec(rule, 0..8).prop_map(|rules| {
        let named = |(at, (plugin, whom, priority, enabled, overridable))| Rule {
            name: format!("b{at}"),
            plugin,
            whom,
            priority,
            enabled,
            overridable,
        };
        rules.into_iter().enumerate().map(named).collect()
    })
}

/// Setups with priorities from this range: a narrow range clashes often, a wide one rarely.
fn setups(priorities: std::ops::Range<i64>) -> impl Strategy<Value = Setup> {
    rules(priorities).prop_flat_map(|rules| {
        let overridable: Vec<_> = (0..rules.len()).filter(|at| rules[*at].overridable).collect();
        let some = 0..=overridable.len();
        let tenant = (prop::bool::weighted(0.9), labels(), subsequence(overridable, some));
        let tenants = prop::collection::vec(tenant, TENANTS).prop_map(|tenants| {
            let listed = |(enabled, labels, disable)| Listed { enabled, labels, disable };
            tenants.into_iter().map(listed).collect()
        });
        let plugins = prop::array::uniform3(prop::bool::weighted(0.9));
        (plugins, Just(rules), tenants, any::<bool>()).prop_map(|(plugins, rules, tenants, accept)| {
            let mut setup = Setup { plugins, rules, tenants, accept };
            for n in 0..TENANTS {
                let rules = &setup.rules;
                setup.tenants[n]
                    .disable
                    .retain(|at| !matches!(rules[*at].whom, For::Tenant(whose) if whose != n));
            }
            setup
        })
    })
}

/// The table, unless priorities clash.
fn built(setup: &Setup) -> Option<RouteTable> {
    (!setup.clashes()).then(|| table(setup.members()))
}

proptest! {
    #[test]
    fn chains_hold_what_the_rules_say_in_order_of_priority(setup in setups(-50..50)) {
        prop_assume!(!setup.wrong_disables());
        let Some(table) = built(&setup) else { return Ok(()) };
        for (n, id) in setup.served() {
            let rules = setup.expected(n);
            prop_assert!(rules.is_sorted_by(|a, b| a.priority < b.priority));
            let expected: Vec<_> = rules.iter().map(|rule| rule.name.clone()).collect();
            for point in Point::ALL {
                prop_assert_eq!(&chain(&table, &id, point), &expected, "{} at {}", id, point);
            }
        }
        for n in 0..TENANTS {
            let disabled = matches!(table.tenant(&format!("t{n}")), TenantRoute::Disabled);
            prop_assert_eq!(disabled, !setup.tenants[n].enabled);
        }
        prop_assert_eq!(matches!(table.tenant("stranger"), TenantRoute::Unknown), !setup.accept);
    }

    #[test]
    fn equal_priorities_in_one_chain_are_refused_and_nothing_else_is(setup in setups(-2..3)) {
        match RouteTable::build(&config(setup.members()), &[], 1) {
            Ok(_) => prop_assert!(!setup.clashes()),
            Err(found) => {
                prop_assert!(setup.clashes());
                for problem in found {
                    let place = problem.pointer.strip_prefix("/bindings/").and_then(|rest| rest.strip_suffix("/priority"));
                    let second = &setup.rules[place.and_then(|at| at.parse::<usize>().ok()).expect(&problem.pointer)];
                    let first = setup.rules.iter().find(|first| {
                        first.name != second.name
                            && first.priority == second.priority
                            && problem.message.contains(&format!("`{}` and `{}`", first.name, second.name))
                    });
                    let first = first.expect(&problem.message);
                    for (n, id) in setup.served() {
                        let named = if n.is_some() { format!("`{id}`") } else { "any other tenant".to_owned() };
                        if problem.message.contains(&named) {
                            prop_assert!(setup.stands(first, n) && setup.stands(second, n), "{}", problem.message);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn no_tenant_leaves_the_floor_unless_it_is_overridable(
        setup in setups(-50..50), at in any::<prop::sample::Index>(), n in 0..TENANTS,
    ) {
        prop_assume!(!setup.rules.is_empty());
        let mut trying = setup.clone();
        let at = at.index(setup.rules.len());
        trying.tenants[n].disable = vec![at];
        let outcome = RouteTable::build(&config(trying.members()), &[], 1);
        if trying.wrong_disables() {
            let found = outcome.expect_err("the binding is not overridable, or another tenant's");
            let pointer = format!("/tenants/list/{n}/disable/0");
            prop_assert!(found.iter().any(|problem| problem.pointer == pointer), "{:?}", found);
        } else if let Ok(table) = outcome {
            for (n, id) in trying.served() {
                let floor = trying.rules.iter().filter(|rule| !rule.overridable && trying.stands(rule, n));
                let chain = chain(&table, &id, TOOL);
                prop_assert!(floor.clone().all(|rule| chain.contains(&rule.name)));
            }
        }
    }

    #[test]
    fn digests_do_not_depend_on_the_order_of_the_file(setup in setups(-50..50)) {
        prop_assume!(!setup.wrong_disables());
        let Some(one) = built(&setup) else { return Ok(()) };
        let mut members = setup.members();
        for list in ["/bindings", "/tenants/list", "/plugins"] {
            members.pointer_mut(list).and_then(Value::as_array_mut).expect("a list").reverse();
        }
        let (again, reversed) = (table(setup.members()), table(members));
        for (_, id) in setup.served() {
            for point in Point::ALL {
                let digest = &plan(&one, &id, point).digest;
                prop_assert_eq!(digest, &plan(&again, &id, point).digest);
                prop_assert_eq!(digest, &plan(&reversed, &id, point).digest);
            }
        }
    }

    #[test]
    fn equal_digests_mean_equal_chains(setup in setups(-50..50)) {
        prop_assume!(!setup.wrong_disables());
        let Some(table) = built(&setup) else { return Ok(()) };
        let served = setup.served();
        for (_, a) in &served {
            for (_, b) in &served {
                let equal = plan(&table, a, TOOL).digest == plan(&table, b, TOOL).digest;
                prop_assert_eq!(equal, chain(&table, a, TOOL) == chain(&table, b, TOOL));
            }
        }
    }

    #[test]
    fn the_reserve_is_what_later_steps_that_must_not_fail_may_take(
        steps in prop::collection::vec((prop::sample::select(vec!["enforce", "advise", "observe"]), any::<Option<bool>>(), 10_u64..60_000), 0..8),
    ) {
        let bindings: Vec<_> = steps.iter().enumerate().map(|(n, (mode, fail, timeout))| {
            let mut binding = json!({
                "name": format!("b{n}"), "plugin": "a", "tenant": "*", "priority": n, "mode": mode,
                "timeout": format!("{timeout}ms"), "match": { "tools": ["never"] },
            });
            if let (Some(fail), true) = (fail, *mode != "observe") {
                extend(&mut binding, json!({ "on_error": if *fail { "fail" } else { "skip" } }));
            }
            binding
        }).collect();
        let table = table(json!({
            "tenants": { "unknown": "accept" }, "plugins": two_plugins(), "bindings": bindings,
        }));
        let fails = |(mode, fail, _): &&(&str, Option<bool>, u64)| match *mode {
            "enforce" => *fail != Some(false),
            "advise" => *fail == Some(true),
            _ => false,
        };
        for (n, step) in plan(&table, "x", TOOL).steps.iter().enumerate() {
            let later: u64 = steps[n + 1..].iter().filter(fails).map(|(_, _, timeout)| timeout).sum();
            prop_assert_eq!(step.reserve.as_millis(), u128::from(later));
        }
    }
}
