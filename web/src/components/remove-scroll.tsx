/* Keep the page behind a dialog from scrolling. In place of the package react-remove-scroll: see vite.config.ts. */
import { forwardRef, useLayoutEffect, type ElementType, type HTMLAttributes } from "react";

let locks = 0;

interface Props extends HTMLAttributes<HTMLElement> {
  as?: ElementType;
  enabled?: boolean;
  allowPinchZoom?: boolean;
  shards?: unknown;
}

export const RemoveScroll = forwardRef<HTMLElement, Props>(function RemoveScroll(
  { as: Container = "div", enabled = true, allowPinchZoom: _zoom, shards: _shards, ...rest },
  ref,
) {
  useLayoutEffect(() => {
    if (!enabled) return;
    locks += 1;
    document.body.dataset["scrollLocked"] = "";
    return () => {
      locks -= 1;
      if (locks === 0) delete document.body.dataset["scrollLocked"];
    };
  }, [enabled]);
  return <Container ref={ref} {...rest} />;
});
