/** Statuses with details, as the gateway's services send them. */
import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { Metadata, type ServiceError, type status } from "@grpc/grpc-js";

/** Details of a status. */
export interface HostStatusDetails {
  readonly badRequest?: { readonly field: string; readonly description: string };
  readonly retryDelayMs?: number;
  readonly errorInfo?: { readonly reason: string; readonly domain: string; readonly metadata: { readonly [key: string]: string } };
}

/** Why a call to the gateway's services fails. */
export class HostStatus extends Error implements ServiceError {
  override name = "HostStatus";
  readonly metadata = new Metadata();

  constructor(
    readonly code: status,
    readonly details: string,
    more: HostStatusDetails = {},
  ) {
    super(details);
    this.metadata.set("grpc-status-details-bin", Buffer.from(encodeStatus(code, details, more)));
  }
}

/** A `google.rpc.Status`. */
function encodeStatus(code: status, message: string, { badRequest, retryDelayMs, errorInfo }: HostStatusDetails): Uint8Array {
  const writer = new BinaryWriter().tag(1, WireType.Varint).int32(code);
  text(writer, 2, message);
  if (errorInfo !== undefined) {
    const info = text(text(new BinaryWriter(), 1, errorInfo.reason), 2, errorInfo.domain);
    for (const [key, value] of Object.entries(errorInfo.metadata))
      bytes(info, 3, text(text(new BinaryWriter(), 1, key), 2, value).finish());
    detail(writer, "google.rpc.ErrorInfo", info);
  }
  if (badRequest !== undefined) {
    const violation = text(text(new BinaryWriter(), 1, badRequest.field), 2, badRequest.description);
    detail(writer, "google.rpc.BadRequest", bytes(new BinaryWriter(), 1, violation.finish()));
  }
  if (retryDelayMs !== undefined) {
    const duration = new BinaryWriter().tag(1, WireType.Varint).int64(Math.floor(retryDelayMs / 1000));
    duration.tag(2, WireType.Varint).int32((retryDelayMs % 1000) * 1_000_000);
    detail(writer, "google.rpc.RetryInfo", bytes(new BinaryWriter(), 1, duration.finish()));
  }
  return writer.finish();
}

function detail(writer: BinaryWriter, type: string, message: BinaryWriter): void {
  bytes(writer, 3, bytes(text(new BinaryWriter(), 1, `type.googleapis.com/${type}`), 2, message.finish()).finish());
}

function text(writer: BinaryWriter, field: number, value: string): BinaryWriter {
  return writer.tag(field, WireType.LengthDelimited).string(value);
}

function bytes(writer: BinaryWriter, field: number, value: Uint8Array): BinaryWriter {
  return writer.tag(field, WireType.LengthDelimited).bytes(value);
}
