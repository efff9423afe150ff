import time, uuid, statistics
from pathlib import Path
from rem.memory.message import NewMessage
from rem.db.sql import query
async def test_try(rem, sql):
    m=rem.memory("alice@example.com")
    text=Path('/work/main/docs/query-language.md').read_text()
    for n in (10,200,2000,10000):
        s=uuid.uuid4()
        batch=[]
        for i in range(n//2):
            batch += [NewMessage(role="user",content=text[i%9000:i%9000+90]+" we decided it", ), NewMessage(role="assistant",content=text[i%7000:i%7000+900])]
        for k in range(0,len(batch),500): await m.append(s,batch[k:k+500])
        for strategy in ("simple","hybrid"):
            ts=[];q=[]
            for k in range(30):
                t=time.perf_counter(); turn=await m.begin_turn(s,NewMessage(role="user",content="hello there"),strategy=strategy); ts.append((time.perf_counter()-t)*1000)
                async with rem.database.connection() as c:
                    t=time.perf_counter(); await c.fetchval(query("memory","conversation"),*m._owner,s,4096,strategy); q.append((time.perf_counter()-t)*1000)
            print(n,strategy,"begin_turn p50 %.2f max %.2f"%(statistics.median(ts),max(ts)),"sql read %.2f"%statistics.median(q),len(turn.history),sum(h.tokens for h in turn.history))
            t=time.perf_counter(); r=await m.refresh_summary(s,strategy="hybrid"); print("refresh",(time.perf_counter()-t)*1000, r and len(r))
