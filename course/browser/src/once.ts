/** Return `load` such that each key is loaded once, whoever asks for it; what failed is tried again the next time. */
export function onceEach<Key, T>(load: (key: Key) => Promise<T>): (key: Key) => Promise<T> {
  const loaded = new Map<Key, Promise<T>>();
  return (key) => {
    let promise = loaded.get(key);
    if (!promise) {
      promise = load(key);
      promise.catch(() => loaded.delete(key));
      loaded.set(key, promise);
    }
    return promise;
  };
}
