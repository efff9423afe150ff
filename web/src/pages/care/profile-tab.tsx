/* What REM knows about the user as a person, and the corrections to it. */
import { useState } from "react";

import { call } from "../../api/client";
import { useIdentity } from "../../api/identity";
import type { Caller, EntityView } from "../../api/types";
import { useApi } from "../../api/use-api";
import { Badge } from "../../components/badge";
import { Button } from "../../components/button";
import { EmptyState } from "../../components/empty-state";
import { LoadState } from "../../components/load-state";
import { Panel } from "../../components/panel";
import { showError } from "../../components/toast";
import { entityPath } from "../../entity-links";
import { formatDateTime, toWords } from "../../format";
import { Link } from "../../router";
import { texts } from "../../texts";
import { EditDialog } from "../memory/edit-dialog";
import styles from "./care-page.module.css";

const LISTS = ["interests", "preferred_topics"] as const;
const VALUES = ["email", "role", "activity_level"] as const;

export function ProfileTab({ caller }: { caller: Caller }) {
  const profile = useApi((signal) => call("GET /api/v1/profile", { signal }), []);
  const identity = useIdentity();
  const email = caller.email ?? identity.user;
  const create = async () => {
    try {
      await call("POST /api/v1/entities/{table}", { path: { table: "users" }, body: { name: caller.name ?? email, email } });
      profile.reload();
    } catch (error) {
      showError(error);
    }
  };
  return (
    <LoadState loaded={profile}>
      {({ row, is_dreamt: isDreamt }) =>
        row ? (
          <Profile key={row.updated_at} row={row} isDreamt={isDreamt} onChanged={profile.reload} />
        ) : (
          <EmptyState
            icon="person"
            title={texts.care.noProfileTitle}
            actions={
              <Button look="primary" onClick={() => void create()}>
                {texts.care.createProfile}
              </Button>
            }
          >
            {texts.care.noProfile}
          </EmptyState>
        )
      }
    </LoadState>
  );
}

/** What to call a person whose name only dreams could have told: a row may be named by the id of its user. */
function nameOf(row: EntityView): string {
  const name = String(row["name"] ?? "");
  return name && name !== row.user_id ? name : String(row["email"] || texts.care.you);
}

function Profile({ row, isDreamt, onChanged }: { row: EntityView; isDreamt: boolean; onChanged: () => void }) {
  const [isEditing, setIsEditing] = useState(false);
  const actions = (
    <>
      <Link href={entityPath("users", row.key ?? row.id)}>{texts.care.profileSources}</Link>
      <Button isSmall icon="edit" onClick={() => setIsEditing(true)}>
        {texts.care.correct}
      </Button>
    </>
  );
  const summary = String(row["summary"] ?? "");
  return (
    <Panel title={nameOf(row)} description={texts.care.profileText(isDreamt, formatDateTime(row.updated_at))} actions={actions}>
      <p className={summary ? styles.summary : styles.none}>{summary || texts.care.noSummary}</p>
      <dl className={styles.fields}>
        {VALUES.filter((name) => row[name]).map((name) => (
          <div key={name}>
            <dt>{toWords(name)}</dt>
            <dd>{String(row[name])}</dd>
          </div>
        ))}
        {LISTS.map((name) => {
          const items = (row[name] as string[] | undefined) ?? [];
          return (
            <div key={name}>
              <dt>{toWords(name)}</dt>
              <dd className={styles.badges}>
                {items.length ? items.map((item) => <Badge key={item}>{item}</Badge>) : <span className={styles.none}>{texts.care.noneYet}</span>}
              </dd>
            </div>
          );
        })}
      </dl>
      {isEditing && <EditDialog entity={row} onClose={() => setIsEditing(false)} onSaved={onChanged} />}
    </Panel>
  );
}
