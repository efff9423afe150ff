/* The turns of a session, newest at the bottom. Older ones are loaded when the person scrolls up. */
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";

import { Button } from "../../components/button";
import { Icon } from "../../components/icon";
import { Spinner } from "../../components/spinner";
import { texts } from "../../texts";
import type { ChatChoice, Conversation } from "./conversation";
import styles from "./conversation-view.module.css";
import type { ActionCard } from "./events";
import { TurnView } from "./turn-view";
import type { Submit, Turn } from "./turns";

/** So near to the end, the page follows the answer. */
const NEAR_PX = 90;

interface Props {
  conversation: Conversation;
  choice: ChatChoice;
  isOwn: boolean;
}

export function ConversationView({ conversation, choice, isOwn }: Props) {
  const state = useSyncExternalStore(conversation.subscribe, conversation.getState);
  const { turns, isRunning } = state;
  const submits = useMemo(
    () => new Map(turns.flatMap((turn) => (turn.submit ? [[turn.submit.card_id, turn.submit] as const] : []))),
    // Only a new turn brings an answer to a card.
    [turns.length, turns.at(-1)?.key],
  );
  const latest = useRef(choice);
  latest.current = choice;
  const onAskAgain = useCallback(
    (turn: Turn, text: string) => void conversation.askAgain(turn, text, latest.current),
    [conversation],
  );
  const onSubmit = useCallback(
    (card: ActionCard, submit: Submit) => void conversation.submit(card, submit, latest.current),
    [conversation],
  );
  const onRate = useCallback(
    (messageId: string, rating: number, comment: string) => conversation.rate(messageId, rating, comment),
    [conversation],
  );
  const { scroller, content, isAway, goToEnd } = useScroll(turns);
  return (
    <div className={styles.frame}>
      <div ref={scroller} className={styles.scroller} tabIndex={0} role="group" aria-label={texts.chat.conversation}>
        <div ref={content} className={styles.content}>
          {state.hasOlder && <Older key={turns[0]?.key} onShow={() => void conversation.loadOlder()} />}
          {turns.map((turn, index) => (
            <TurnView
              key={turn.key}
              turn={turn}
              submits={submits}
              rating={state.ratings.get(turn.answer?.messageId ?? "") ?? null}
              canWrite={isOwn && !isRunning}
              isLast={index === turns.length - 1}
              onAskAgain={onAskAgain}
              onSubmit={onSubmit}
              onRate={onRate}
            />
          ))}
        </div>
      </div>
      <div className="visually-hidden" role="status">
        {isRunning ? texts.chat.working : turns.at(-1)?.answer?.state === "done" ? texts.chat.answerDone : ""}
      </div>
      {isAway && (
        <Button className={styles.toEnd} isSmall icon="chevronDown" onClick={goToEnd}>
          {texts.chat.toEnd}
        </Button>
      )}
      {state.isWaiting && (
        <div className={styles.waiting} role="alert">
          <Icon name="alert" size={18} />
          <p>{texts.chat.serverGone}</p>
          <Spinner size={16} />
        </div>
      )}
    </div>
  );
}

/** The place above the first turn: older ones are loaded as soon as it is seen. */
function Older({ onShow }: { onShow: () => void }) {
  const place = useRef<HTMLDivElement>(null);
  const show = useRef(onShow);
  show.current = onShow;
  useEffect(() => {
    const observer = new IntersectionObserver(
      ([entry]) => {
        if (entry?.isIntersecting) show.current();
      },
      { rootMargin: "600px 0px 0px" },
    );
    if (place.current) observer.observe(place.current);
    return () => observer.disconnect();
  }, []);
  return (
    <div ref={place} className={styles.older}>
      <Spinner label={texts.chat.older} size={16} />
    </div>
  );
}

/** Keep the end in view while the person is there, and keep what they read in its place when older turns appear. */
function useScroll(turns: readonly Turn[]) {
  const scroller = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const isFollowing = useRef(true);
  const [isAway, setIsAway] = useState(false);
  const goToEnd = useCallback(() => {
    isFollowing.current = true;
    const box = scroller.current;
    if (box) box.scrollTop = box.scrollHeight;
  }, []);
  useEffect(() => {
    const box = scroller.current;
    if (!box || !content.current) return;
    const note = () => {
      isFollowing.current = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_PX;
      setIsAway(!isFollowing.current);
    };
    const follow = () => {
      if (isFollowing.current) box.scrollTop = box.scrollHeight;
    };
    const observer = new ResizeObserver(follow);
    observer.observe(content.current);
    observer.observe(box);
    box.addEventListener("scroll", note, { passive: true });
    return () => {
      observer.disconnect();
      box.removeEventListener("scroll", note);
    };
  }, []);
  const first = turns[0]?.key;
  const last = turns.at(-1)?.key;
  const known = useRef({ first, height: 0 });
  useLayoutEffect(() => {
    const box = scroller.current;
    if (!box) return;
    if (known.current.first !== first && !isFollowing.current) box.scrollTop += box.scrollHeight - known.current.height;
    known.current = { first, height: box.scrollHeight };
  });
  // A new question of the person is always shown.
  useLayoutEffect(goToEnd, [last, goToEnd]);
  return { scroller, content, isAway, goToEnd };
}
