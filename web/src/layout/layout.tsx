/* The frame of the whole interface: the navigation at the side (at the bottom on small screens) and the page. */
import { Suspense, type ReactNode } from "react";

import type { Start } from "../api/session";
import { Icon } from "../components/icon";
import { Spinner } from "../components/spinner";
import { PAGES } from "../pages/pages";
import { Link, usePath } from "../router";
import { texts } from "../texts";
import { AccountMenu } from "./account-menu";
import styles from "./layout.module.css";
import { Logo } from "./logo";

export function Layout({ start, children }: { start: Start; children: ReactNode }) {
  const path = usePath();
  return (
    <div className={styles.layout}>
      <a href="#content" className={styles.skip}>
        {texts.common.skipToContent}
      </a>
      <aside className={styles.side}>
        <Link href="/chat" className={styles.brand} aria-label={texts.product}>
          <Logo />
          <span className={styles.brandName}>{texts.product}</span>
        </Link>
        <nav className={styles.navigation} aria-label={texts.navigation.label}>
          {PAGES.map((page) => (
            <Link
              key={page.path}
              href={page.path}
              className={styles.item}
              aria-current={isBelow(path, page.path) ? "page" : undefined}
            >
              <Icon name={page.icon} />
              <span className={styles.itemText}>{page.title}</span>
            </Link>
          ))}
        </nav>
        <AccountMenu start={start} />
      </aside>
      <main id="content" className={styles.main} tabIndex={-1}>
        <Suspense fallback={<PageLoading />}>{children}</Suspense>
      </main>
    </div>
  );
}

export function isBelow(path: string, parent: string): boolean {
  return path === parent || path.startsWith(`${parent}/`) || (path === "/" && parent === "/chat");
}

function PageLoading() {
  return (
    <div className={styles.loading}>
      <Spinner label={texts.common.loading} />
    </div>
  );
}
