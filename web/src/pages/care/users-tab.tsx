/* The people of the workspace, for administrators: roles, tiers, and who may log in. */
import { call } from "../../api/client";
import type { Caller, UpdateUserRequest, UserView } from "../../api/types";
import { useApi } from "../../api/use-api";
import { EmptyState } from "../../components/empty-state";
import { Select, Toggle } from "../../components/field";
import { LoadState } from "../../components/load-state";
import { Panel } from "../../components/panel";
import { showError } from "../../components/toast";
import { formatAge, formatNumber } from "../../format";
import { texts } from "../../texts";
import styles from "./care-page.module.css";

const ROLES = ["user", "admin"].map((value) => ({ value, title: value }));
const TIERS = ["free", "basic", "pro"].map((value) => ({ value, title: value }));

export function UsersTab({ caller }: { caller: Caller }) {
  if (caller.role !== "admin") {
    return (
      <EmptyState icon="person" title={texts.care.adminsOnlyTitle}>
        {texts.care.adminsOnly}
      </EmptyState>
    );
  }
  return (
    <div className={styles.column}>
      <Statistics />
      <Users caller={caller} />
    </div>
  );
}

function Statistics() {
  const statistics = useApi((signal) => call("GET /api/v1/admin/statistics", { signal }), []);
  return (
    <Panel title={texts.care.workspace}>
      <LoadState loaded={statistics}>
        {(found) => (
          <dl className={styles.figures}>
            <Figure title={texts.care.accounts} value={found.accounts} />
            <Figure title={texts.care.activeUsers} value={found.active_users} />
            <Figure title={texts.care.tokens} value={found.tokens} />
            <Figure title={texts.care.rows} value={Object.values(found.tables).reduce((sum, table) => sum + table.live, 0)} />
            <Figure title={texts.care.actionsToday} value={Object.values(found.actions).reduce((sum, number) => sum + number, 0)} />
          </dl>
        )}
      </LoadState>
    </Panel>
  );
}

function Figure({ title, value }: { title: string; value: number }) {
  return (
    <div>
      <dt>{title}</dt>
      <dd>{formatNumber(value)}</dd>
    </div>
  );
}

function Users({ caller }: { caller: Caller }) {
  const users = useApi((signal) => call("GET /api/v1/admin/users", { query: { limit: 200 }, signal }), []);
  const change = async (user: UserView, body: UpdateUserRequest) => {
    try {
      const changed = await call("PATCH /api/v1/admin/users/{user}", { path: { user: user.user_id }, body });
      users.setData((page) => page && { ...page, data: page.data.map((other) => (other.user_id === user.user_id ? changed : other)) });
    } catch (error) {
      showError(error);
    }
  };
  return (
    <Panel title={texts.care.tabs.users} count={users.data?.data.length}>
      <LoadState loaded={users}>
        {(page) => (
          <ul className={styles.users}>
            {page.data.map((user) => (
              <UserRow key={user.user_id} user={user} isSelf={user.user_id === caller.id} onChange={(body) => void change(user, body)} />
            ))}
          </ul>
        )}
      </LoadState>
    </Panel>
  );
}

function UserRow({ user, isSelf, onChange }: { user: UserView; isSelf: boolean; onChange: (body: UpdateUserRequest) => void }) {
  const name = user.email ?? user.name ?? user.user_id;
  const active = user.last_active_at ? formatAge(user.last_active_at) : texts.care.neverActive;
  return (
    <li>
      <div className={styles.userName}>
        <h3>{name}</h3>
        <p className={styles.facts}>
          <span>{texts.care.userFigures(user.sessions, user.messages)}</span>
          <span>{active}</span>
        </p>
      </div>
      {user.role === null ? (
        <p className={styles.none}>{texts.care.noAccount}</p>
      ) : (
        <div className={styles.userFields}>
          <Select
            label={`${texts.care.role}: ${name}`}
            isLabelHidden
            value={user.role}
            disabled={isSelf}
            options={ROLES}
            onChange={(event) => onChange({ role: event.target.value as "admin" | "user" })}
          />
          <Select
            label={`${texts.care.tier}: ${name}`}
            isLabelHidden
            value={user.tier ?? "free"}
            options={TIERS}
            onChange={(event) => onChange({ tier: event.target.value as "free" | "basic" | "pro" })}
          />
          <Toggle
            label={texts.care.mayLogIn}
            checked={user.disabled_at === null}
            disabled={isSelf}
            onChange={(event) => onChange({ disabled: !event.target.checked })}
          />
        </div>
      )}
    </li>
  );
}
