/* The sessions of the person: find one, and open, rename, share, export or forget it. */
import { memo, useEffect, useState } from "react";

import { call, getTrustsHeaders, OFFLINE, SIGN_IN_NEEDED } from "../../api/client";
import type { PageSessionView, SessionView } from "../../api/types";
import { useApi } from "../../api/use-api";
import { Button, IconButton } from "../../components/button";
import { SearchField } from "../../components/field";
import { Icon } from "../../components/icon";
import { LoadState } from "../../components/load-state";
import { Link, navigate } from "../../router";
import { texts } from "../../texts";
import { SessionMenu, type OpenedDialog } from "./session-menu";
import styles from "./session-list.module.css";
import { getAge, onSessionsChange, type Age } from "./sessions";

const FIRST_SESSIONS = 40;
const MORE_SESSIONS = 200;
/** The most that one request returns. */
const PAGE_SESSIONS = 500;
const SEARCH_MS = 250;
const AGES: readonly Age[] = ["today", "yesterday", "week", "month", "older"];

interface Props {
  openId: string | null;
  /** Called when a session is chosen: a drawer closes then. */
  onChoose?: () => void;
  onDialog: (dialog: OpenedDialog) => void;
}

export function SessionList({ openId, onChoose, onDialog }: Props) {
  const [text, setText] = useState("");
  const search = useDelayed(text.trim(), SEARCH_MS);
  const [limit, setLimit] = useState(FIRST_SESSIONS);
  const own = useApi((signal) => listSessions(search, limit, signal), [search, limit]);
  useEffect(() => setLimit(FIRST_SESSIONS), [search]);
  const shared = useApi((signal) => call("GET /api/v1/shared-with-me", { query: { limit: 100 }, signal }), []);
  // While the server is away, what was known stays.
  const shown = own.data && own.error?.code === OFFLINE ? { ...own, error: null } : own;
  const { reload } = own;
  useEffect(() => onSessionsChange(reload), [reload]);
  // Sessions have an owner, so an anonymous caller has none.
  const isAnonymous = !getTrustsHeaders() && own.error?.status === 400;
  const sharedRows = (shared.data?.data ?? []).filter((session) => fits(session, search));
  const begin = () => {
    navigate("/chat");
    onChoose?.();
  };
  return (
    <div className={styles.list}>
      <div className={styles.head}>
        <SearchField label={texts.chat.search} value={text} onChange={(event) => setText(event.target.value)} />
        <IconButton icon="add" label={texts.chat.newSession} onClick={begin} />
      </div>
      <nav className={styles.scroller} aria-label={texts.chat.sessions}>
        {isAnonymous ? (
          <div className={styles.none}>
            <p>{texts.chat.noOwner}</p>
            <Button isSmall onClick={() => window.dispatchEvent(new Event(SIGN_IN_NEEDED))}>
              {texts.account.signIn}
            </Button>
          </div>
        ) : (
          <LoadState loaded={shown}>
            {(page) =>
              page.data.length === 0 && sharedRows.length === 0 ? (
                <p className={styles.none}>{search ? texts.chat.noneFound(search) : texts.chat.noSessions}</p>
              ) : (
                <>
                  {search ? (
                    <Group title={texts.chat.found} sessions={page.data} openId={openId} onChoose={onChoose} onDialog={onDialog} />
                  ) : (
                    AGES.map((age) => (
                      <Group
                        key={age}
                        title={texts.chat.ages[age]}
                        sessions={page.data.filter((session) => getAge(session.updated_at) === age)}
                        openId={openId}
                        onChoose={onChoose}
                        onDialog={onDialog}
                      />
                    ))
                  )}
                  {page.has_more && (
                    <Button look="quiet" isSmall isBusy={own.isLoading} onClick={() => setLimit(limit + MORE_SESSIONS)}>
                      {texts.common.loadMore}
                    </Button>
                  )}
                  <Group title={texts.chat.shared} sessions={sharedRows} openId={openId} onChoose={onChoose} onDialog={onDialog} isShared />
                </>
              )
            }
          </LoadState>
        )}
      </nav>
    </div>
  );
}

async function listSessions(search: string, limit: number, signal: AbortSignal): Promise<PageSessionView> {
  const offsets = Array.from({ length: Math.ceil(limit / PAGE_SESSIONS) }, (_, page) => page * PAGE_SESSIONS);
  const pages = await Promise.all(
    offsets.map((offset) => {
      const query = { limit: Math.min(PAGE_SESSIONS, limit - offset), offset, q: search || undefined };
      return call("GET /api/v1/sessions", { query, signal });
    }),
  );
  // A session that is used meanwhile moves to another page.
  const rows = new Map(pages.flatMap((page) => page.data).map((session) => [session.id, session]));
  return { object: "list", data: [...rows.values()], has_more: pages.at(-1)?.has_more ?? false };
}

function fits(session: SessionView, search: string): boolean {
  return (session.title ?? "").toLowerCase().includes(search.toLowerCase());
}

interface GroupProps extends Props {
  title: string;
  sessions: readonly SessionView[];
  isShared?: boolean;
}

function Group({ title, sessions, openId, onChoose, onDialog, isShared = false }: GroupProps) {
  if (sessions.length === 0) return null;
  return (
    <section className={styles.group}>
      <h2 className={styles.groupTitle}>{title}</h2>
      <ul>
        {sessions.map((session) => (
          <SessionRow
            key={session.id}
            session={session}
            isOpen={session.id === openId}
            isShared={isShared}
            onChoose={onChoose}
            onDialog={onDialog}
          />
        ))}
      </ul>
    </section>
  );
}

interface RowProps extends Pick<Props, "onChoose" | "onDialog"> {
  session: SessionView;
  isOpen: boolean;
  isShared: boolean;
}

/** A list of thousands is loaded again after each answer: only what has changed is drawn again. */
const SessionRow = memo(
  function SessionRow({ session, isOpen, isShared, onChoose, onDialog }: RowProps) {
    return (
      <li className={styles.row} data-open={isOpen || undefined}>
        <Link href={`/chat/${session.id}`} className={styles.link} aria-current={isOpen ? "page" : undefined} onClick={onChoose}>
          {isShared && <Icon name="share" size={16} />}
          <span className={styles.name}>{session.title || texts.chat.untitled}</span>
        </Link>
        {!isShared && <SessionMenu session={session} onDialog={onDialog} />}
      </li>
    );
  },
  (old, next) =>
    old.session.id === next.session.id &&
    old.session.updated_at === next.session.updated_at &&
    old.session.title === next.session.title &&
    old.isOpen === next.isOpen &&
    old.onDialog === next.onDialog,
);

function useDelayed<T>(value: T, ms: number): T {
  const [delayed, setDelayed] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setDelayed(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return delayed;
}
