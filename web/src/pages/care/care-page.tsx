/* Care: health and storage, the profile, approvals, keys and limits, and the users of the workspace. */
import { call } from "../../api/client";
import type { Caller } from "../../api/types";
import { useApi } from "../../api/use-api";
import { LoadState } from "../../components/load-state";
import { PageFrame } from "../../layout/page-frame";
import { Link, usePath } from "../../router";
import { texts } from "../../texts";
import { AccessTab } from "./access-tab";
import { ApprovalsTab } from "./approvals-tab";
import styles from "./care-page.module.css";
import { HealthTab } from "./health-tab";
import { ProfileTab } from "./profile-tab";
import { UsersTab } from "./users-tab";

type Tab = keyof typeof texts.care.tabs;
const TABS: readonly Tab[] = ["health", "profile", "approvals", "access", "users"];

export default function CarePage() {
  const path = usePath();
  const caller = useApi((signal) => call("GET /api/auth/me", { signal }), []);
  const isAdmin = caller.data?.role === "admin";
  const tab = TABS.find((known) => path === `/care/${known}`) ?? "health";
  return (
    <PageFrame title={texts.care.title} description={texts.care.description}>
      <nav className={styles.tabs} aria-label={texts.care.sections}>
        {TABS.filter((known) => known !== "users" || isAdmin).map((known) => (
          <Link key={known} href={known === "health" ? "/care" : `/care/${known}`} aria-current={known === tab ? "page" : undefined} ref={known === tab ? showTab : undefined}>
            {texts.care.tabs[known]}
          </Link>
        ))}
      </nav>
      <LoadState loaded={caller}>{(known) => <Content tab={tab} caller={known} />}</LoadState>
    </PageFrame>
  );
}

/** On a narrow window the tabs scroll sideways, and the current one may be outside of it. */
function showTab(link: HTMLAnchorElement | null): void {
  link?.scrollIntoView({ block: "nearest", inline: "nearest" });
}

function Content({ tab, caller }: { tab: Tab; caller: Caller }) {
  if (tab === "profile") return <ProfileTab caller={caller} />;
  if (tab === "approvals") return <ApprovalsTab />;
  if (tab === "access") return <AccessTab caller={caller} />;
  if (tab === "users") return <UsersTab caller={caller} />;
  return <HealthTab />;
}
