declare const brand: unique symbol;

/** A value that cannot be mistaken for another of the same shape; minted in one place each. */
export type Brand<T, Name extends string> = T & { readonly [brand]: Name };
