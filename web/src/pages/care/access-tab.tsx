/* Who you are to the server, how much you may do, and the API keys of your programs. */
import { useState, type FormEvent } from "react";

import { call, getTrustsHeaders, send } from "../../api/client";
import type { Caller, KeyInfo } from "../../api/types";
import { useApi } from "../../api/use-api";
import { Badge } from "../../components/badge";
import { Button } from "../../components/button";
import { ConfirmDialog, Dialog } from "../../components/dialog";
import { Select, TextField } from "../../components/field";
import { LoadState } from "../../components/load-state";
import { Panel } from "../../components/panel";
import { describeError, showError, showToast } from "../../components/toast";
import { formatAge, formatDay } from "../../format";
import { texts } from "../../texts";
import styles from "./care-page.module.css";

const SCOPES = ["read", "write", "chat", "admin"] as const;
const LIFETIMES = ["30", "90", "365", ""];

export function AccessTab({ caller }: { caller: Caller }) {
  return (
    <div className={styles.columns}>
      <KeysPanel caller={caller} />
      <LimitsPanel caller={caller} />
    </div>
  );
}

function LimitsPanel({ caller }: { caller: Caller }) {
  const limits = useApi(async (signal) => {
    const { headers } = await send("GET /api/v1/models", { signal });
    const read = (name: string) => (headers.has(name) ? Number(headers.get(name)) : null);
    return { limit: read("RateLimit-Limit"), remaining: read("RateLimit-Remaining"), reset: read("RateLimit-Reset") };
  }, []);
  return (
    <Panel title={texts.care.you}>
      <dl className={styles.fields}>
        <div>
          <dt>{texts.care.user}</dt>
          <dd>{caller.email ?? caller.id ?? texts.account.anonymous}</dd>
        </div>
        <div>
          <dt>{texts.account.tenant}</dt>
          <dd>{caller.tenant_id}</dd>
        </div>
        <div>
          <dt>{texts.care.role}</dt>
          <dd>{caller.role}</dd>
        </div>
        <div>
          <dt>{texts.care.tier}</dt>
          <dd>{caller.tier}</dd>
        </div>
        <div>
          <dt>{texts.care.may}</dt>
          <dd className={styles.badges}>
            {caller.scopes.map((scope) => (
              <Badge key={scope}>{scope}</Badge>
            ))}
          </dd>
        </div>
        <div>
          <dt>{texts.care.limits}</dt>
          <dd>
            <LoadState loaded={limits}>
              {({ limit, remaining, reset }) =>
                limit === null ? texts.care.noLimit : texts.care.limit(remaining ?? 0, limit, reset ?? 0)
              }
            </LoadState>
          </dd>
        </div>
      </dl>
    </Panel>
  );
}

function KeysPanel({ caller }: { caller: Caller }) {
  if (getTrustsHeaders()) {
    return (
      <Panel title={texts.care.keys}>
        <p className={styles.none}>{texts.care.keysNotNeeded}</p>
      </Panel>
    );
  }
  if (caller.method === "api_key" || caller.method === "none") {
    return (
      <Panel title={texts.care.keys}>
        <p className={styles.none}>{texts.care.keysNeedLogin}</p>
      </Panel>
    );
  }
  return <Keys />;
}

function Keys() {
  const keys = useApi((signal) => call("GET /api/auth/keys", { signal }), []);
  const [isCreating, setIsCreating] = useState(false);
  const [created, setCreated] = useState<string | null>(null);
  const [revoked, setRevoked] = useState<KeyInfo | null>(null);
  const revoke = async () => {
    if (!revoked) return;
    try {
      await call("DELETE /api/auth/keys/{key}", { path: { key: revoked.id } });
      keys.reload();
    } catch (error) {
      showError(error);
    }
  };
  const actions = (
    <Button isSmall look="primary" icon="add" onClick={() => setIsCreating(true)}>
      {texts.care.createKey}
    </Button>
  );
  return (
    <Panel title={texts.care.keys} description={texts.care.keysText} actions={actions}>
      <LoadState loaded={keys}>
        {(list) =>
          list.data.length === 0 ? (
            <p className={styles.none}>{texts.care.noKeys}</p>
          ) : (
            <ul className={styles.keys}>
              {list.data.map((key) => (
                <KeyRow key={key.id} info={key} onRevoke={() => setRevoked(key)} />
              ))}
            </ul>
          )
        }
      </LoadState>
      {isCreating && (
        <CreateKeyDialog
          onClose={() => setIsCreating(false)}
          onCreated={(key) => {
            setIsCreating(false);
            setCreated(key);
            keys.reload();
          }}
        />
      )}
      <Dialog
        isOpen={created !== null}
        onClose={() => setCreated(null)}
        title={texts.care.keyCreated}
        description={texts.care.keyOnce}
        footer={
          <Button look="primary" icon="copy" onClick={() => void copy(created ?? "")}>
            {texts.common.copy}
          </Button>
        }
      >
        <code className={styles.secret}>{created}</code>
      </Dialog>
      <ConfirmDialog
        isOpen={revoked !== null}
        onClose={() => setRevoked(null)}
        title={texts.care.revokeTitle(revoked?.name ?? "")}
        description={texts.care.revokeText}
        confirm={texts.care.revoke}
        onConfirm={revoke}
      />
    </Panel>
  );
}

async function copy(text: string): Promise<void> {
  await navigator.clipboard.writeText(text);
  showToast(texts.common.copied);
}

function KeyRow({ info, onRevoke }: { info: KeyInfo; onRevoke: () => void }) {
  return (
    <li>
      <div>
        <h3>{info.name}</h3>
        <p className={styles.facts}>
          <code>{info.prefix}…</code>
          {info.scopes.map((scope) => (
            <Badge key={scope}>{scope}</Badge>
          ))}
          <span>{info.last_used_at ? texts.care.lastUsed(formatAge(info.last_used_at)) : texts.care.neverUsed}</span>
          <span>{info.expires_at ? texts.care.expires(formatDay(info.expires_at)) : texts.care.neverExpires}</span>
        </p>
      </div>
      {info.revoked_at ? (
        <Badge tone="danger">{texts.care.revoked}</Badge>
      ) : (
        <Button isSmall onClick={onRevoke} aria-label={texts.care.revokeKey(info.name)}>
          {texts.care.revoke}
        </Button>
      )}
    </li>
  );
}

function CreateKeyDialog({ onClose, onCreated }: { onClose: () => void; onCreated: (key: string) => void }) {
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState<readonly string[]>(["read", "write", "chat"]);
  const [days, setDays] = useState("90");
  const [problem, setProblem] = useState<string | null>(null);
  const create = async (event: FormEvent) => {
    event.preventDefault();
    try {
      const body = { name: name.trim(), scopes: [...scopes], expires_in_days: days ? Number(days) : null };
      onCreated((await call("POST /api/auth/keys", { body })).key);
    } catch (error) {
      setProblem(describeError(error));
    }
  };
  const footer = (
    <>
      <Button onClick={onClose}>{texts.common.cancel}</Button>
      <Button look="primary" type="submit" form="create-key" disabled={!name.trim() || !scopes.length}>
        {texts.care.createKey}
      </Button>
    </>
  );
  return (
    <Dialog isOpen onClose={onClose} title={texts.care.createKey} footer={footer}>
      <form id="create-key" className={styles.form} onSubmit={(event) => void create(event)}>
        <TextField label={texts.care.keyName} hint={texts.care.keyNameHint} error={problem} value={name} maxLength={100} onChange={(event) => setName(event.target.value)} />
        <fieldset className={styles.scopes}>
          <legend>{texts.care.keyScopes}</legend>
          {SCOPES.map((scope) => (
            <label key={scope}>
              <input
                type="checkbox"
                checked={scopes.includes(scope)}
                onChange={(event) => setScopes(event.target.checked ? [...scopes, scope] : scopes.filter((other) => other !== scope))}
              />
              <span>{texts.care.scopes[scope]}</span>
            </label>
          ))}
        </fieldset>
        <Select
          label={texts.care.keyExpires}
          value={days}
          options={LIFETIMES.map((value) => ({ value, title: value ? texts.care.inDays(Number(value)) : texts.care.never }))}
          onChange={(event) => setDays(event.target.value)}
        />
      </form>
    </Dialog>
  );
}
