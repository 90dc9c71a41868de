import {
  DeleteObjectCommand,
  DeleteObjectsCommand,
  GetObjectCommand,
  ListObjectsV2Command,
  NoSuchKey,
  PutObjectCommand,
  S3Client,
  type S3ClientConfig,
} from '@aws-sdk/client-s3';

/** Objects in a bucket, as far as the platform uses them. Every call ends when its signal aborts, with its reason. */
export interface ObjectStore {
  /** Undefined when there is no such object. */
  read(key: string, signal: AbortSignal): Promise<string | undefined>;
  write(key: string, body: string, signal: AbortSignal): Promise<void>;
  /** Up to 1,000 keys in the order of the store. `next` leads to the page behind; a page may be empty and have one. */
  listPage(prefix: string, next: string | undefined, signal: AbortSignal): Promise<KeyPage>;
  /** Deletes up to 1,000 objects. Those that are not there are no errors; the errors of single keys are answered. */
  deleteKeys(keys: readonly string[], signal: AbortSignal): Promise<KeyError[]>;
}

export interface KeyPage {
  readonly keys: readonly string[];
  readonly next: string | undefined;
}

export interface KeyError {
  readonly key: string;
  readonly reason: string;
}

/** Any store that speaks the protocol of S3. */
export interface ObjectStoreSettings {
  readonly bucket: string;
  readonly region: string;
  /** Undefined for AWS itself. */
  readonly endpoint?: string | undefined;
  /** Undefined for those that the SDK finds in its environment. */
  readonly credentials?: { readonly accessKeyId: string; readonly secretAccessKey: string } | undefined;
}

/** What the protocol allows for one listing and for one batch delete. */
export const KEYS_PER_PAGE = 1_000;

/** Opens nothing until the first call; `close` ends the connections that are kept for the next one. */
export function openObjectStore(settings: ObjectStoreSettings): ObjectStore & { close(): void } {
  const { bucket, region, endpoint, credentials } = settings;
  const config: S3ClientConfig = {
    region,
    // Checksums that older stores do not know are left out where the protocol does not ask for them.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
  };
  if (endpoint !== undefined) Object.assign(config, { endpoint, forcePathStyle: true });
  if (credentials !== undefined) config.credentials = credentials;
  return new S3ObjectStore(new S3Client(config), bucket);
}

class S3ObjectStore implements ObjectStore {
  readonly #client: S3Client;
  readonly #bucket: string;

  constructor(client: S3Client, bucket: string) {
    this.#client = client;
    this.#bucket = bucket;
  }

  read(key: string, signal: AbortSignal): Promise<string | undefined> {
    return heeding(signal, async () => {
      try {
        const command = new GetObjectCommand({ Bucket: this.#bucket, Key: key });
        const { Body } = await this.#client.send(command, { abortSignal: signal });
        return await Body?.transformToString();
      } catch (error) {
        if (error instanceof NoSuchKey) return undefined;
        throw error;
      }
    });
  }

  write(key: string, body: string, signal: AbortSignal): Promise<void> {
    return heeding(signal, async () => {
      const command = new PutObjectCommand({ Bucket: this.#bucket, Key: key, Body: body });
      await this.#client.send(command, { abortSignal: signal });
    });
  }

  listPage(prefix: string, next: string | undefined, signal: AbortSignal): Promise<KeyPage> {
    return heeding(signal, async () => {
      const command = new ListObjectsV2Command({
        Bucket: this.#bucket,
        Prefix: prefix,
        ContinuationToken: next,
        MaxKeys: KEYS_PER_PAGE,
        // A key may hold characters that XML cannot.
        EncodingType: 'url',
      });
      const page = await this.#client.send(command, { abortSignal: signal });
      const keys = (page.Contents ?? []).map(({ Key = '' }) =>
        page.EncodingType === 'url' ? decoded(Key) : Key,
      );
      // A store that ignores the prefix would have somebody else's objects deleted.
      const stranger = keys.find((key) => !key.startsWith(prefix));
      if (stranger !== undefined) throw new Error(`the listing of '${prefix}' holds the key '${stranger}'`);
      if (page.IsTruncated !== true) return { keys, next: undefined };
      if (page.NextContinuationToken === undefined || page.NextContinuationToken === next) {
        throw new Error(`the listing of '${prefix}' says that it goes on, but not where`);
      }
      return { keys, next: page.NextContinuationToken };
    });
  }

  deleteKeys(keys: readonly string[], signal: AbortSignal): Promise<KeyError[]> {
    return heeding(signal, async () => {
      const errors = await this.#deleteBatch(keys.filter(travelsInXml), signal);
      for (const key of keys.filter((each) => !travelsInXml(each))) {
        await this.#client.send(new DeleteObjectCommand({ Bucket: this.#bucket, Key: key }), {
          abortSignal: signal,
        });
      }
      return errors;
    });
  }

  async #deleteBatch(keys: readonly string[], signal: AbortSignal): Promise<KeyError[]> {
    // A batch of none is refused as malformed.
    if (keys.length === 0) return [];
    const objects = keys.map((key) => ({ Key: key }));
    const command = new DeleteObjectsCommand({
      Bucket: this.#bucket,
      Delete: { Objects: objects, Quiet: true },
    });
    const { Errors = [] } = await this.#client.send(command, { abortSignal: signal });
    return Errors.map(({ Key = '', Code, Message }) => ({
      key: Key,
      reason: Code ?? Message ?? 'no reason given',
    }));
  }

  close(): void {
    this.#client.destroy();
  }
}

/** Runs a call of the SDK. Its AbortError says nothing of why; the signal does. */
async function heeding<Answer>(signal: AbortSignal, call: () => Promise<Answer>): Promise<Answer> {
  signal.throwIfAborted();
  try {
    return await call();
  } catch (error) {
    signal.throwIfAborted();
    throw error;
  }
}

function decoded(key: string): string {
  return decodeURIComponent(key.replaceAll('+', ' '));
}

/** Whether a key comes through a batch, which is XML, as it is: no control characters, nothing that is trimmed. */
function travelsInXml(key: string): boolean {
  return key === key.trim() && !/[\p{Cc}\ufffe\uffff]/u.test(key);
}
