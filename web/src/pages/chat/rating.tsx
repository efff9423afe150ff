/* Thumbs for an answer, with a comment if the person wants to say more. */
import { useState } from "react";

import { Button, IconButton } from "../../components/button";
import { Dialog } from "../../components/dialog";
import { TextArea } from "../../components/field";
import { showError, showToast } from "../../components/toast";
import { texts } from "../../texts";

interface Props {
  messageId: string;
  rating: number | null;
  onRate: (messageId: string, rating: number, comment: string) => Promise<void>;
}

export function RatingButtons({ messageId, rating, onRate }: Props) {
  const [chosen, setChosen] = useState<1 | -1 | null>(null);
  const [comment, setComment] = useState("");
  const [isBusy, setIsBusy] = useState(false);
  const close = () => setChosen(null);
  const send = async () => {
    if (chosen === null) return;
    setIsBusy(true);
    try {
      await onRate(messageId, chosen, comment);
      showToast(texts.chat.rated);
      setComment("");
      close();
    } catch (error) {
      showError(error);
    } finally {
      setIsBusy(false);
    }
  };
  const footer = (
    <>
      <Button onClick={close}>{texts.common.cancel}</Button>
      <Button look="primary" isBusy={isBusy} onClick={() => void send()}>
        {texts.chat.sendRating}
      </Button>
    </>
  );
  return (
    <>
      <IconButton
        icon="thumbUp"
        label={texts.chat.good}
        isSmall
        isPressed={rating !== null && rating > 0}
        onClick={() => setChosen(1)}
      />
      <IconButton
        icon="thumbDown"
        label={texts.chat.bad}
        isSmall
        isPressed={rating !== null && rating < 0}
        onClick={() => setChosen(-1)}
      />
      <Dialog isOpen={chosen !== null} onClose={close} title={chosen === -1 ? texts.chat.badTitle : texts.chat.goodTitle} footer={footer}>
        <TextArea
          label={texts.chat.comment}
          hint={texts.chat.commentHint}
          value={comment}
          maxLength={10_000}
          onChange={(event) => setComment(event.target.value)}
        />
      </Dialog>
    </>
  );
}
