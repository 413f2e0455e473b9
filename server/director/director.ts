import { randomUUID } from 'node:crypto';
import { type ChangeStream, openChangeStream } from '../change-stream.ts';
import { route } from '../http.ts';
import type { ReadinessReport, RoleContext, RolePart } from '../role-part.ts';
import { createRelayTokenVerifier } from '../tokens.ts';
import type { App } from '../uws.ts';
import { createAssign } from './assign.ts';
import { registerCellOnly } from './cell-only.ts';
import { createCellPost } from './cell-post.ts';
import { registerCellViews } from './cell-views.ts';
import { DeadCellVerdicts } from './dead-cell-verdicts.ts';
import { type Desk, openDesk } from './desk.ts';
import { EventFeed } from './event-feed.ts';
import { registerEvents } from './event-route.ts';
import { Fleet, isAboutCells } from './fleet.ts';
import { FleetFeed } from './fleet-feed.ts';
import { registerFleetPage } from './fleet-page.ts';
import { createHostToken } from './host-token.ts';
import { InviteMover } from './invite-mover.ts';
import { createLocate } from './locate.ts';
import { NotificationQueue } from './notification-queue.ts';
import { Owners } from './owners.ts';
import { PendingMoves } from './pending-moves.ts';
import { PlacementMemory } from './placement-memory.ts';
import { checkPoolBudget } from './pool-budget.ts';
import { Refusals } from './refusals.ts';
import { Regions } from './regions.ts';
import { openReserve, type Reserve } from './reserve.ts';
import { createResolve } from './resolve.ts';
import { createFetchPage } from './seat-feed-client.ts';
import { SeatMap } from './seat-map.ts';
import { SeatPoller } from './seat-poller.ts';
import { ServiceTokens } from './service-tokens.ts';
import { SilentHomes } from './silent-homes.ts';
import { type Sweeps, startSweeps } from './sweeps.ts';
import { registerWhereabouts } from './whereabouts.ts';

/** Places hosts on cells. A restart loses nothing: what it knows is in Postgres and on the cells (01, processes). */

const CHANGE_POLL_MS = 250;

export function createDirector(context: RoleContext): RolePart {
  const { clock, config, db, log, metrics } = context;
  const refusals = new Refusals(log, metrics, clock);
  const tokens = createRelayTokenVerifier(config, clock);
  const fleet = new Fleet(db, log, metrics, clock);
  const directorId = randomUUID();
  const serviceTokens = new ServiceTokens(config.signingKey, directorId, clock);
  const seats = new SeatMap(clock, { retentionMs: config.ownerRetentionMs });
  const verdicts = new DeadCellVerdicts(log, metrics, clock);
  const poller = new SeatPoller({
    map: seats,
    cells: () => fleet.list,
    feedCells: config.seatFeedCells,
    placementOn: config.reservePlacement === 'on',
    fetchPage: createFetchPage(serviceTokens),
    log,
    metrics,
    clock,
    peerTime: context.peerTime,
    onRound: ({ cells, lateMs }) => verdicts.round(cells, lateMs),
    onPolled: ({ cellId, outcome }) => verdicts.polled(cellId, outcome),
  });
  const pending = new PendingMoves(clock);
  const memory = new PlacementMemory({ clock, mode: config.reservePlacement, pending, seats });
  const desk = openDesk(context, { memory, judge: (cellId) => verdicts.of(cellId) });
  const silentHomes = new SilentHomes({
    clock,
    judgedInMs: (cellId) => verdicts.judgedInMs(cellId),
    slotMs: () => desk.lanes.placement.slotMs,
  });
  const post = createCellPost(serviceTokens);
  const reserve = openReserve({ context, desk, directorId, fleet, memory, post, seats, verdicts });
  fleet.onRead(() => {
    poller.listed();
    reserve.listed();
  });
  const owners = new Owners({ seats, pending, cells: () => fleet.cells });
  const locate = createLocate({ clock, db, desk, owners });
  const events = new EventFeed(db, log, metrics, clock, () => verdicts.withheld());
  seats.onCell((event) => events.cell(event));
  seats.onPage((cellId, page) => {
    pending.settle(cellId, seats);
    events.page(cellId, page);
  });
  const feed = new FleetFeed(db, log, metrics, clock, () => verdicts.withheld());
  verdicts.onWithheld((event) => {
    events.verdict(event);
    feed.changed();
  });
  const notifications = new NotificationQueue(db, log, metrics, clock);
  const mover = new InviteMover({ clock, peerTime: context.peerTime, locate, log, metrics, refusals });
  let running: { stream: ChangeStream; sweeps: Sweeps } | null = null;

  return {
    register(app) {
      registerHttp(app, context, { desk, locate, refusals, reserve, silentHomes, tokens });
      registerFleetPage(app, context, feed);
      registerEvents(app, context, events);
      registerCellViews(app, context, seats, verdicts);
      registerWhereabouts(app, { context, owners, pending, seats });
      // On one origin with a cell, the cell takes phones in itself.
      if (config.role === 'director') mover.register(app);
      if (config.role === 'director') registerCellOnly(app);
    },
    async start() {
      await checkPoolBudget(db);
      poller.start();
      reserve.start();
      notifications.start();
      const stream = openChangeStream({
        databaseUrl: config.databaseUrl,
        db,
        pollMs: CHANGE_POLL_MS,
        onChange: (change) => {
          if (isAboutCells(change.kind)) void fleet.refresh();
          owners.announced(change);
          reserve.changed(change);
          events.changed(change);
          feed.changed();
        },
        onResync: (reason) => {
          reserve.resynced();
          events.resynced(reason);
          feed.changed();
          return fleet.refresh();
        },
        onRead: (cursor) => events.came(cursor),
        log,
        metrics,
        clock,
      });
      running = { stream, sweeps: startSweeps(db, log, metrics, clock) };
    },
    async readiness(): Promise<ReadinessReport> {
      if (!config.auth) return { accepting: running !== null };
      return { accepting: running !== null, jwks: await tokens.ready() };
    },
    async stop() {
      const stopping = running;
      running = null;
      desk.stop();
      mover.stop();
      refusals.stop();
      await Promise.all([
        fleet.stop(),
        poller.stop().then(() => reserve.stop()),
        feed.stop(),
        events.stop(),
        notifications.stop(),
        stopping?.stream.stop(),
        stopping?.sweeps.stop(),
      ]);
    },
  };
}

interface Served {
  desk: Desk;
  locate: ReturnType<typeof createLocate>;
  refusals: Refusals;
  reserve: Reserve;
  silentHomes: SilentHomes;
  tokens: ReturnType<typeof createRelayTokenVerifier>;
}

function registerHttp(app: App, context: RoleContext, served: Served): void {
  const { desk, locate, refusals, reserve, silentHomes, tokens } = served;
  const regions = new Regions(context.db, refusals, context.clock);
  route(
    app,
    'post',
    '/v1/assign',
    createAssign({ context, desk, refusals, reserve: reserve.assign, silentHomes, tokens }),
  );
  route(app, 'post', '/v1/resolve', createResolve(locate, refusals));
  route(app, 'post', '/v1/host-token', createHostToken(context, refusals));
  route(app, 'get', '/v1/regions', () => regions.answer());
}
