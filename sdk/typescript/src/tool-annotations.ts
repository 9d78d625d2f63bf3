/** What a plugin says of its tools, as in the Model Context Protocol. */

/** What to expect of a tool, by the word of its plugin. */
export interface ToolAnnotations {
  /** A name for people. */
  readonly title?: string | undefined;
  /** Changes nothing. */
  readonly readOnlyHint?: boolean | undefined;
  /** May delete or overwrite. */
  readonly destructiveHint?: boolean | undefined;
  /** A repeated call with the same arguments changes nothing more. */
  readonly idempotentHint?: boolean | undefined;
  /** Reaches beyond the plugin, for example the web. */
  readonly openWorldHint?: boolean | undefined;
}
