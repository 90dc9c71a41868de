import { mkdir, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import {
  DeleteObjectCommand,
  ListObjectsV2Command,
  PutObjectCommand,
  type S3Client,
} from '@aws-sdk/client-s3';

/** Where assets lie. */
export type FileStorage = S3Storage | DiskStorage;

export interface ListedObject {
  readonly key: string;
  readonly lastModified: Date;
}

export interface ListedPage {
  /** In the order of their keys; may be empty although others follow. */
  readonly objects: readonly ListedObject[];
  /** Where the next page begins; undefined behind the last one. */
  readonly next: string | undefined;
}

export interface PageRequest {
  readonly prefix: string;
  /** For the first page of a run: only keys behind this one. */
  readonly afterKey: string | undefined;
  /** For the pages behind it: `next` of the page before. */
  readonly token: string | undefined;
  readonly signal: AbortSignal;
}

/** A bucket of anything that speaks S3. Only this one can be listed, and so swept. */
export class S3Storage {
  readonly kind = 's3';
  readonly #client: S3Client;
  readonly #bucket: string;
  readonly #pageKeys: number | undefined;

  /** @param options.pageKeys keys of a page; the store's own limit, 1,000, by default */
  constructor(client: S3Client, bucket: string, options: { readonly pageKeys?: number } = {}) {
    this.#client = client;
    this.#bucket = bucket;
    this.#pageKeys = options.pageKeys;
  }

  async put(key: string, body: string | Uint8Array, signal: AbortSignal): Promise<void> {
    const command = new PutObjectCommand({ Bucket: this.#bucket, Key: key, Body: body });
    await this.#client.send(command, { abortSignal: signal });
  }

  /** A key that is not there is deleted already. */
  async delete(key: string, signal: AbortSignal): Promise<void> {
    const command = new DeleteObjectCommand({ Bucket: this.#bucket, Key: key });
    await this.#client.send(command, { abortSignal: signal });
  }

  async listPage({ prefix, afterKey, token, signal }: PageRequest): Promise<ListedPage> {
    const command = new ListObjectsV2Command({
      Bucket: this.#bucket,
      Prefix: prefix,
      MaxKeys: this.#pageKeys,
      StartAfter: token === undefined ? afterKey : undefined,
      ContinuationToken: token,
    });
    const page = await this.#client.send(command, { abortSignal: signal });
    // Whether there is more is said by this flag alone: a page may be short, or empty, in the middle of a listing.
    if (page.IsTruncated === true && page.NextContinuationToken === undefined) {
      throw new Error(`the listing of ${prefix} goes on, and the store does not say where`);
    }
    const objects = (page.Contents ?? []).flatMap(({ Key: key, LastModified: lastModified }) =>
      key === undefined || lastModified === undefined ? [] : [{ key, lastModified }],
    );
    return { objects, next: page.IsTruncated === true ? page.NextContinuationToken : undefined };
  }
}

/** A folder, for development without an object store. */
export class DiskStorage {
  readonly kind = 'disk';
  readonly #folder: string;

  constructor(folder: string) {
    this.#folder = folder;
  }

  async put(key: string, body: string | Uint8Array, signal: AbortSignal): Promise<void> {
    const file = this.#fileOf(key);
    await mkdir(path.dirname(file), { recursive: true });
    await writeFile(file, body, { signal });
  }

  async delete(key: string, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    await rm(this.#fileOf(key), { force: true });
  }

  // One name for each key, below no other folder: a key may hold dots, slashes and whatever else.
  #fileOf(key: string): string {
    return path.join(this.#folder, encodeURIComponent(key).replaceAll('.', '%2E'));
  }
}
