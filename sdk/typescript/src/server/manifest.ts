/** The manifest of a plugin as Describe answers it. */
import { create } from "@bufbuild/protobuf";
import {
  Access,
  DescribeResponseSchema,
  type DescribeResponse,
  HookOfferSchema,
  PointOfferSchema,
  SideEffects,
} from "../gen/hookgate/plugin/v1/plugin_pb.js";
import { writeJsonBytes } from "../json.js";
import type { Plugin } from "../plugin.js";
import { POINTS, type PointOffer, wireNameOfField } from "../point.js";
import { type Schema, jsonSchemaOf } from "../schema.js";

/** The versions of the contract that the SDK speaks. */
const PROTOCOL_VERSIONS = [1];

const SIDE_EFFECTS = { none: SideEffects.NONE, some: SideEffects.SOME };

export function describePlugin(plugin: Plugin<any, any>): DescribeResponse {
  const { name, version, capabilities = [], config, tenantConfig, points: offers = {}, hooks = {}, toolNames = [] } = plugin.manifest;
  const points = POINTS.filter((point) => plugin.points.includes(point.name)).map((point) => {
    const { access = "modify", sideEffects = "some", reads, windows = false }: PointOffer = offers[point.name] ?? {};
    return create(PointOfferSchema, {
      point: point.wire,
      access: access === "read" ? Access.READ : Access.MODIFY,
      sideEffects: SIDE_EFFECTS[sideEffects],
      reads: reads && { names: reads.map(wireNameOfField) },
      windows,
    });
  });
  return create(DescribeResponseSchema, {
    name,
    version,
    protocolVersions: PROTOCOL_VERSIONS,
    points,
    capabilities: [...capabilities],
    configSchema: schemaBytes(config, "`config`"),
    tenantConfigSchema: schemaBytes(tenantConfig, "`tenantConfig`"),
    hooks: Object.entries(hooks).map(([hook, { sideEffects = "some" }]) =>
      create(HookOfferSchema, { hook, sideEffects: SIDE_EFFECTS[sideEffects] }),
    ),
    tools: [...toolNames],
  });
}

function schemaBytes(schema: Schema | undefined, role: string): Uint8Array<ArrayBuffer> {
  return writeJsonBytes(jsonSchemaOf(schema, role), role);
}
