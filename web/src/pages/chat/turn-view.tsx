/* One turn: the question of the person and the answer of the agent, with what can be done with them. */
import { memo, useEffect, useState } from "react";

import { Badge } from "../../components/badge";
import { Button, IconButton } from "../../components/button";
import { CopyButton } from "../../components/copy-button";
import { Markdown } from "../../components/markdown";
import { Spinner } from "../../components/spinner";
import { texts } from "../../texts";
import { CardBox } from "./action-card";
import { Activity } from "./activity";
import type { ActionCard } from "./events";
import { NoteBadges } from "./notes";
import { RatingButtons } from "./rating";
import styles from "./turn-view.module.css";
import type { Answer, Submit, Turn } from "./turns";

export interface TurnActions {
  onAskAgain: (turn: Turn, text: string) => void;
  onSubmit: (card: ActionCard, submit: Submit) => void;
  onRate: (messageId: string, rating: number, comment: string) => Promise<void>;
}

interface Props extends TurnActions {
  turn: Turn;
  /** The answers of the person to cards, by the id of the card. */
  submits: ReadonlyMap<string, Submit>;
  rating: number | null;
  /** The person may write in this session, and no answer is running. */
  canWrite: boolean;
  isLast: boolean;
}

export const TurnView = memo(function TurnView({ turn, submits, rating, canWrite, isLast, ...actions }: Props) {
  const { answer } = turn;
  const [isEditing, setIsEditing] = useState(false);
  const canAskAgain = canWrite && turn.question !== null && turn.submit === null && !turn.isSpoken;
  return (
    <article className={styles.turn} data-last={isLast || undefined} aria-label={texts.chat.turn}>
      {turn.question !== null &&
        (isEditing ? (
          <QuestionEditor
            text={turn.question}
            onCancel={() => setIsEditing(false)}
            onSend={(text) => {
              setIsEditing(false);
              actions.onAskAgain(turn, text);
            }}
          />
        ) : (
          <div className={styles.question}>
            <div className={styles.bubble}>
              <h2 className="visually-hidden">{texts.chat.youSaid}</h2>
              {turn.isSpoken ? <Spinner label={texts.chat.transcribing} size={16} /> : turn.question}
            </div>
            <div className={styles.tools}>
              {canAskAgain && <IconButton icon="edit" label={texts.chat.edit} isSmall onClick={() => setIsEditing(true)} />}
              <CopyButton text={turn.question} />
            </div>
          </div>
        ))}
      {answer && (
        <div className={styles.answer}>
          <span className="visually-hidden">{texts.chat.answered}</span>
          <Activity answer={answer} />
          {answer.text ? (
            <Markdown text={answer.text} />
          ) : (
            answer.state === "running" && <Spinner label={texts.chat.working} size={16} />
          )}
          <NoteBadges notes={answer.notes} />
          {answer.cards.map((shown) => (
            <CardBox
              key={shown.card.id}
              shown={shown}
              answer={submits.get(shown.card.id) ?? null}
              canAnswer={canWrite}
              isRepeated={answer.text.includes(shown.card.prompt.trim())}
              onSubmit={actions.onSubmit}
            />
          ))}
          <AnswerEnd answer={answer} onRetry={canAskAgain ? () => actions.onAskAgain(turn, turn.question ?? "") : null} />
          {answer.state !== "running" && (
            <div className={styles.tools}>
              {answer.text && <CopyButton text={answer.text} label={texts.chat.copyAnswer} />}
              {answer.messageId && <RatingButtons messageId={answer.messageId} rating={rating} onRate={actions.onRate} />}
              {canAskAgain && (
                <IconButton
                  icon="retry"
                  label={texts.chat.retry}
                  isSmall
                  onClick={() => actions.onAskAgain(turn, turn.question ?? "")}
                />
              )}
              <span className={styles.by}>{[...new Set([answer.agent, answer.model])].filter(Boolean).join(" · ")}</span>
            </div>
          )}
        </div>
      )}
      {!answer && turn.question !== null && canAskAgain && (
        <div className={styles.answer}>
          <p className={styles.note}>{texts.chat.noAnswer}</p>
          <Button icon="retry" isSmall onClick={() => actions.onAskAgain(turn, turn.question ?? "")}>
            {texts.chat.retry}
          </Button>
        </div>
      )}
    </article>
  );
});

/** What to know about an answer that did not end as usual. */
function AnswerEnd({ answer, onRetry }: { answer: Answer; onRetry: (() => void) | null }) {
  const seconds = useSecondsUntil(answer.error?.retryAt ?? null);
  const retry = (wait: number) =>
    onRetry && (
      <Button icon="retry" isSmall disabled={wait > 0} onClick={onRetry}>
        {wait > 0 ? texts.chat.retryIn(wait) : texts.common.tryAgain}
      </Button>
    );
  if (answer.state === "failed") {
    return (
      <div className={styles.failure} role="alert">
        <p>{answer.error?.message || texts.errors.unknown}</p>
        {retry(seconds)}
      </div>
    );
  }
  if (answer.state === "lost") {
    return (
      <div className={styles.failure}>
        <p>{texts.chat.lost}</p>
        {retry(0)}
      </div>
    );
  }
  if (answer.state === "stopped") return <Badge>{texts.chat.stopped}</Badge>;
  return answer.isCut ? <Badge tone="warning">{texts.chat.cut}</Badge> : null;
}

function useSecondsUntil(time: number | null): number {
  const [now, setNow] = useState(Date.now());
  const isOver = time === null || now >= time;
  useEffect(() => {
    if (isOver) return;
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [isOver]);
  return time === null ? 0 : Math.max(0, Math.ceil((time - now) / 1000));
}

function QuestionEditor({ text, onCancel, onSend }: { text: string; onCancel: () => void; onSend: (text: string) => void }) {
  const [draft, setDraft] = useState(text);
  const send = () => draft.trim() && onSend(draft.trim());
  return (
    <form
      className={styles.editor}
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <textarea
        aria-label={texts.chat.edit}
        value={draft}
        rows={Math.min(10, draft.split("\n").length + 1)}
        autoFocus
        onChange={(event) => setDraft(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") onCancel();
          if (event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing) {
            event.preventDefault();
            send();
          }
        }}
      />
      <p className={styles.note}>{texts.chat.editHint}</p>
      <div className={styles.editorActions}>
        <Button isSmall onClick={onCancel}>
          {texts.common.cancel}
        </Button>
        <Button isSmall look="primary" type="submit" disabled={!draft.trim()}>
          {texts.chat.resend}
        </Button>
      </div>
    </form>
  );
}
