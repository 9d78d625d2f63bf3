//! The points and hooks at which a plugin of the runner's file answers.

use hookgate_proto::{Access, HookName, Offer, PayloadFields, Point, SideEffects, plugin::v1 as wire};
use serde::Deserialize;

/// A point, alone or with what the plugin does there.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "WrittenPoint")]
pub(crate) struct PointEntry(pub(crate) Offer);

/// A hook, alone or with what the plugin does there.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "WrittenHook")]
pub(crate) struct HookEntry {
    pub(crate) hook: HookName,
    pub(crate) side_effects: SideEffects,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected a point, or a mapping with `point`, `access`, `side_effects`, `reads` and `windows`"
)]
enum WrittenPoint {
    Name(String),
    Full(FullPoint),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FullPoint {
    point: String,
    #[serde(default)]
    access: AccessName,
    #[serde(default)]
    side_effects: SideEffectsName,
    reads: Option<Vec<String>>,
    #[serde(default)]
    windows: bool,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a hook, or a mapping with `hook` and `side_effects`")]
enum WrittenHook {
    Name(String),
    Full(FullHook),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FullHook {
    hook: String,
    #[serde(default)]
    side_effects: SideEffectsName,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AccessName {
    Read,
    #[default]
    Modify,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SideEffectsName {
    None,
    #[default]
    Some,
}

impl From<SideEffectsName> for SideEffects {
    fn from(name: SideEffectsName) -> Self {
        match name {
            SideEffectsName::None => SideEffects::None,
            SideEffectsName::Some => SideEffects::Some,
        }
    }
}

impl TryFrom<WrittenPoint> for PointEntry {
    type Error = String;

    fn try_from(written: WrittenPoint) -> Result<Self, String> {
        let full = match written {
            WrittenPoint::Full(full) => full,
            WrittenPoint::Name(point) => FullPoint {
                point,
                access: AccessName::default(),
                side_effects: SideEffectsName::default(),
                reads: None,
                windows: false,
            },
        };
        let point = Point::from_name(&full.point).ok_or_else(|| {
            let known = Point::ALL.map(Point::as_str).join(", ");
            format!("`{}` is not a point; the points are {known}", full.point)
        })?;
        let access = match full.access {
            AccessName::Read => Access::Read,
            AccessName::Modify => Access::Modify,
        };
        let reads = full.reads.map(|names| PayloadFields::from_names(point, &names)).transpose();
        let reads = reads.map_err(|error| error.to_string())?;
        if full.windows {
            point.check_windows(reads)?;
        }
        let side_effects = full.side_effects.into();
        Ok(PointEntry(Offer { point, access, side_effects, reads, windows: full.windows }))
    }
}

impl TryFrom<WrittenHook> for HookEntry {
    type Error = String;

    fn try_from(written: WrittenHook) -> Result<Self, String> {
        let full = match written {
            WrittenHook::Full(full) => full,
            WrittenHook::Name(hook) => FullHook { hook, side_effects: SideEffectsName::default() },
        };
        let hook = HookName::new(&full.hook).map_err(|error| format!("`{}`: {error}", full.hook))?;
        Ok(HookEntry { hook, side_effects: full.side_effects.into() })
    }
}

impl HookEntry {
    /// The offer as a manifest names it.
    pub(crate) fn to_wire(&self) -> wire::HookOffer {
        let side_effects = self.side_effects.to_wire().into();
        wire::HookOffer { hook: self.hook.as_str().to_owned(), side_effects }
    }
}
