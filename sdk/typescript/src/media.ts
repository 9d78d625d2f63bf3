/** Files and images in payloads. */

/** A file or an image: its bytes, or a URL that Hookgate passes on and never fetches. */
export type Media = (MediaData | MediaUrl) & {
  /** Media type (RFC 6838), such as `image/png`. */
  readonly mimeType: string;
  /** Name to show to a person. */
  readonly filename?: string | undefined;
};

/** The content itself. */
export interface MediaData {
  /** The bytes. */
  readonly data: Uint8Array;
  /** Absent beside `data`. */
  readonly url?: undefined;
}

/** Where the content is. */
export interface MediaUrl {
  /** Not empty. */
  readonly url: string;
  /** Absent beside `url`. */
  readonly data?: undefined;
}
