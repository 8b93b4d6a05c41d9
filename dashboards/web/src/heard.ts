// What one module keeps and many parts of the page draw.

import { useEffect, useState } from "preact/hooks";

export class Listeners {
  private readonly all = new Set<() => void>();

  /** Have everybody look again. */
  tell(): void {
    for (const listener of this.all) listener();
  }

  /** What `now` gives, and again whenever it was told that this has changed. */
  use<T>(now: () => T): T {
    const [value, setValue] = useState(now);
    useEffect(() => {
      const listener = () => setValue(now);
      this.all.add(listener);
      listener();
      return () => void this.all.delete(listener);
    }, []);
    return value;
  }
}
